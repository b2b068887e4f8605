//! Servers on the database, and which of them does what only one does.

use windlass_core::{Millis, Timestamp};
use windlass_store::{Now, SERVER_FORGOTTEN_AFTER, ServerId, ServerState, Service, ServiceLease};

use super::{
    columns::Columns as _,
    connection::Connection,
    error::{Fault, damaged},
    limits::millis,
    migrate::VERSION,
    script::{Script, cells},
};
use crate::{
    Schema,
    rows::{check_version, from_integer, small, to_integer},
};

/// A server is heard of, unless the tables are none that it knows any more.
pub(super) async fn register(connection: &mut Connection<'_>, server: &ServerState) -> Result<(), Fault> {
    // Apart from what follows, which other tables may not take.
    let mut script = Script::default();
    script.add("SELECT schema_version, readable_from FROM windlass_meta", []);
    if let Some(row) = connection.run(script).await?.iter().flatten().next() {
        let (found, readable_from) = (row.number(0)?, row.number(1)?);
        check_version(Schema { found, readable_from, known: VERSION })?;
    }
    let heard = to_integer(server.heard.0);
    let mut script = Script::default();
    let row = cells![
        server.id.0,
        &*server.version,
        &*server.address,
        server.level,
        server.started_at.0,
        server.heard_at.0,
        heard
    ];
    script.insert(
        "INSERT INTO windlass_server (id, version, address, level, started_at, heard_at, heard)",
        [row],
        "ON DUPLICATE KEY UPDATE version = VALUES(version), address = VALUES(address), level = VALUES(level),
         started_at = VALUES(started_at), heard_at = VALUES(heard_at), heard = VALUES(heard)",
    );
    let silent = heard.saturating_sub(to_integer(SERVER_FORGOTTEN_AFTER.0));
    script.add("DELETE FROM windlass_server WHERE heard <= ?", cells![silent]);
    connection.run(script).await?;
    Ok(())
}

/// The servers, those that started first before others.
pub(super) async fn servers(connection: &mut Connection<'_>) -> Result<Vec<ServerState>, Fault> {
    let mut script = Script::default();
    script.add(
        "SELECT id, version, address, level, started_at, heard_at, heard FROM windlass_server
         ORDER BY started_at, id",
        [],
    );
    let sets = connection.run(script).await?;
    let server = |row: &mysql_async::Row| -> Result<ServerState, Fault> {
        Ok(ServerState {
            id: ServerId(row.id(0)?),
            version: row.text(1)?.into(),
            address: row.text(2)?.into(),
            level: small(row.number(3)?),
            started_at: Timestamp(row.number(4)?),
            heard_at: Timestamp(row.number(5)?),
            heard: millis(row, 6)?,
        })
    };
    sets[0].iter().map(server).collect()
}

/// A server ends.
pub(super) async fn leave(connection: &mut Connection<'_>, server: ServerId) -> Result<(), Fault> {
    let mut script = Script::default();
    script.add("DELETE FROM windlass_server WHERE id = ?", cells![server.0]);
    script.add("UPDATE windlass_service SET ends = 0 WHERE holder = ?", cells![server.0]);
    connection.run(script).await?;
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
    let (name, mono) = (service.name(), to_integer(now.mono.0));
    let mut script = Script::default();
    // The row is made by whoever comes first, and held while it is decided who has it. Assignments are made in their
    // order, so the holder is looked at before it is another one.
    script.insert(
        "INSERT INTO windlass_service (name, holder, fence, ends)",
        [cells![name, server.0, 1_i64, until]],
        &format!(
            "ON DUPLICATE KEY UPDATE
             fence = IF(holder <> VALUES(holder) AND ends <= {mono}, fence + 1, fence),
             holder = IF(ends <= {mono}, VALUES(holder), holder),
             ends = IF(holder = VALUES(holder), VALUES(ends), ends)"
        ),
    );
    let lease = script.add("SELECT holder, fence, ends FROM windlass_service WHERE name = ?", cells![name]);
    let sets = connection.run(script).await?;
    let row = sets[lease].first().ok_or_else(|| damaged("a lease was not written"))?;
    Ok(ServiceLease {
        holder: ServerId(row.id(0)?),
        fence: from_integer(row.number(1)?),
        until: millis(row, 2)?,
    })
}
