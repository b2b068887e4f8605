//! Servers on the database, and which of them does what only one does.

use uuid::Uuid;
use windlass_core::{Millis, Timestamp};
use windlass_store::{Now, SERVER_FORGOTTEN_AFTER, ServerId, ServerState, Service, ServiceLease};

use super::{
    connection::{Batch, Connection, parameters},
    error::Fault,
    migrate::VERSION,
};
use crate::{
    Schema,
    rows::{check_version, from_integer, small, to_integer},
};

const TIME: &str = "SELECT floor(extract(epoch FROM clock_timestamp()) * 1000)::int8";
const REGISTER: &str =
    "INSERT INTO windlass_server (id, version, address, level, started_at, heard_at, heard)
    VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (id) DO UPDATE
    SET version = $2, address = $3, level = $4, started_at = $5, heard_at = $6, heard = $7";
const SCHEMA: &str = "SELECT schema_version::int8, readable_from::int8 FROM windlass_meta";
const FORGET: &str = "DELETE FROM windlass_server WHERE heard <= $1";
const ALL: &str = "SELECT id, version, address, level, started_at, heard_at, heard FROM windlass_server
    ORDER BY started_at, id";
const LEAVE: &str = "DELETE FROM windlass_server WHERE id = $1";
const END_LEASES: &str = "UPDATE windlass_service SET until = 0 WHERE holder = $1";
/// The row is made by whoever comes first, and held while it is decided who has it.
const LEASE: &str = "INSERT INTO windlass_service AS s (name, holder, fence, until) VALUES ($1, $2, 1, $3)
    ON CONFLICT (name) DO UPDATE
    SET holder = $2, until = $3, fence = s.fence + CASE WHEN s.holder = $2 THEN 0 ELSE 1 END
    WHERE s.holder = $2 OR s.until <= $4";
const HOLDER: &str = "SELECT holder, fence, until FROM windlass_service WHERE name = $1";

/// What time it is by the database's clock.
pub(super) async fn time(connection: &mut Connection<'_>) -> Result<Option<Timestamp>, Fault> {
    let rows = connection.query(TIME, &[]).await?;
    Ok(rows.first().map(|row| row.try_get(0)).transpose()?.map(Timestamp))
}

/// A server is heard of, unless the tables are none that it knows any more.
pub(super) async fn register(connection: &mut Connection<'_>, server: &ServerState) -> Result<(), Fault> {
    // Apart from what follows, which other tables may not take.
    if let Some(row) = connection.query(SCHEMA, &[]).await?.first() {
        let (found, readable_from) = (row.try_get(0)?, row.try_get(1)?);
        check_version(Schema { found, readable_from, known: VERSION.into() })?;
    }
    let heard = to_integer(server.heard.0);
    let mut batch = Batch::default();
    batch.add(
        REGISTER,
        parameters![
            Uuid::from_u128(server.id.0),
            &*server.version,
            &*server.address,
            i64::from(server.level),
            server.started_at.0,
            server.heard_at.0,
            heard
        ],
    );
    batch.add(FORGET, parameters![heard.saturating_sub(to_integer(SERVER_FORGOTTEN_AFTER.0))]);
    connection.send(batch).await?;
    Ok(())
}

/// The servers, those that started first before others.
pub(super) async fn servers(connection: &mut Connection<'_>) -> Result<Vec<ServerState>, Fault> {
    let rows = connection.query(ALL, &[]).await?;
    let mut servers = Vec::with_capacity(rows.len());
    for row in &rows {
        let id: Uuid = row.try_get(0)?;
        servers.push(ServerState {
            id: ServerId(id.as_u128()),
            version: row.try_get::<_, &str>(1)?.into(),
            address: row.try_get::<_, &str>(2)?.into(),
            level: small(row.try_get(3)?),
            started_at: Timestamp(row.try_get(4)?),
            heard_at: Timestamp(row.try_get(5)?),
            heard: Millis(from_integer(row.try_get(6)?)),
        });
    }
    Ok(servers)
}

/// A server ends.
pub(super) async fn leave(connection: &mut Connection<'_>, server: ServerId) -> Result<(), Fault> {
    let id = Uuid::from_u128(server.0);
    let mut batch = Batch::default();
    batch.add(LEAVE, parameters![id]);
    batch.add(END_LEASES, parameters![id]);
    connection.send(batch).await?;
    Ok(())
}

/// Makes a server the one that does this, where it is already or no other one is.
pub(super) async fn lease(
    connection: &mut Connection<'_>,
    service: Service,
    server: ServerId,
    length: Millis,
    now: Now,
) -> Result<ServiceLease, Fault> {
    let until = to_integer(now.mono.0.saturating_add(length.0));
    let mut batch = Batch::default();
    let (name, id) = (service.name(), Uuid::from_u128(server.0));
    batch.add(LEASE, parameters![name, id, until, to_integer(now.mono.0)]);
    batch.add(HOLDER, parameters![name]);
    let results = connection.send(batch).await?;
    let row = results[1].first().ok_or_else(|| Fault::NoConnection("a lease was not written".to_owned()))?;
    let holder: Uuid = row.try_get(0)?;
    Ok(ServiceLease {
        holder: ServerId(holder.as_u128()),
        fence: from_integer(row.try_get(1)?),
        until: Millis(from_integer(row.try_get(2)?)),
    })
}
