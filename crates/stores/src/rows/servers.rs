//! Servers on the database, and which of them leads a service.

use windlass_core::{Millis, Timestamp};
use windlass_store::{Now, ServerId, ServerState, Service, ServiceLease};

use super::{Columns as _, Fault, Link, check_version, damaged, from_integer, small, to_integer};
use crate::Schema;

/// Statements about servers.
pub(crate) trait ServerSql: Link {
    /// The version of the schema that this program makes and writes.
    const VERSION: i64;

    /// The clock of the database, in milliseconds since 1970.
    fn time() -> Self::Script<'static>;

    /// `schema_version, readable_from`.
    fn schema() -> Self::Script<'static>;

    /// Writes the row of a server, and deletes those that were not heard for long.
    fn register(server: &ServerState) -> Self::Script<'_>;

    /// All servers by the time of their start: `id, version, address, level, started_at, heard_at, heard`.
    fn servers() -> Self::Script<'static>;

    /// Deletes a server and ends its leases.
    fn leave(server: ServerId) -> Self::Script<'static>;

    /// The services whose leases were ended by servers that have left, and that no other server has taken: `name`.
    fn released() -> Self::Script<'static>;

    /// Takes or renews the lease of a service where it is free, or held by this server until now. The last answer is who
    /// has it then: `holder, fence, until`.
    fn lease(service: Service, server: ServerId, until: i64, now: Now) -> Self::Script<'static>;
}

/// The time by the database's clock.
pub(crate) async fn time<D: ServerSql>(link: &mut D) -> Result<Option<Timestamp>, Fault> {
    let rows = link.rows(D::time()).await?;
    Ok(rows.first().map(|row| row.number(0)).transpose()?.map(Timestamp))
}

/// A server reports that it runs. Fails where the tables are too new for this program.
pub(crate) async fn register<D: ServerSql>(link: &mut D, server: &ServerState) -> Result<(), Fault> {
    // Before the row is written, which other tables may not accept.
    if let Some(row) = link.rows(D::schema()).await?.first() {
        let (found, readable_from) = (row.number(0)?, row.number(1)?);
        check_version(Schema { found, readable_from, known: D::VERSION })?;
    }
    link.send(D::register(server)).await?;
    Ok(())
}

/// The servers, in the order in which they started.
pub(crate) async fn servers<D: ServerSql>(link: &mut D) -> Result<Vec<ServerState>, Fault> {
    let mut servers = Vec::new();
    for row in link.rows(D::servers()).await? {
        servers.push(ServerState {
            id: ServerId(row.id(0)?),
            version: row.text(1)?.into(),
            address: row.text(2)?.into(),
            level: small(row.number(3)?),
            started_at: Timestamp(row.number(4)?),
            heard_at: Timestamp(row.number(5)?),
            heard: row.millis(6)?,
        });
    }
    Ok(servers)
}

/// The services that no server leads because their last leader has left.
pub(crate) async fn released<D: ServerSql>(link: &mut D) -> Result<Vec<Service>, Fault> {
    let rows = link.rows(D::released()).await?;
    let names = rows.iter().map(|row| row.text(0)).collect::<Result<Vec<_>, _>>()?;
    Ok(Service::ALL.into_iter().filter(|service| names.contains(&service.name())).collect())
}

/// Makes a server the leader of a service, where it is already or no other one is.
pub(crate) async fn lease<D: ServerSql>(
    link: &mut D,
    service: Service,
    server: ServerId,
    length: Millis,
    now: Now,
) -> Result<ServiceLease, Fault> {
    let until = to_integer(now.mono.0.saturating_add(length.0));
    let answers = link.send(D::lease(service, server, until, now)).await?;
    let row =
        answers.last().and_then(|rows| rows.first()).ok_or_else(|| damaged("a lease was not written"))?;
    Ok(ServiceLease {
        holder: ServerId(row.id(0)?),
        fence: from_integer(row.number(1)?),
        until: row.millis(2)?,
    })
}
