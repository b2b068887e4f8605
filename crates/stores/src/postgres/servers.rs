//! Servers on the database.

use uuid::Uuid;
use windlass_store::{Now, SERVER_FORGOTTEN_AFTER, ServerId, ServerState, Service};

use super::{
    connection::{Batch, Connection, parameters},
    migrate::VERSION,
};
use crate::rows::{servers::ServerSql, to_integer};

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
/// Other servers hear of it when it is committed.
const TELL: &str = "SELECT pg_notify('windlass_released', '')";
const RELEASED: &str = "SELECT name FROM windlass_service WHERE until = 0";
/// The first server makes the row, which stays locked while it is decided which one leads.
const LEASE: &str = "INSERT INTO windlass_service AS s (name, holder, fence, until) VALUES ($1, $2, 1, $3)
    ON CONFLICT (name) DO UPDATE
    SET holder = $2, until = $3, fence = s.fence + CASE WHEN s.holder = $2 THEN 0 ELSE 1 END
    WHERE s.holder = $2 OR s.until <= $4";
const HOLDER: &str = "SELECT holder, fence, until FROM windlass_service WHERE name = $1";

impl ServerSql for Connection {
    const VERSION: i64 = VERSION;

    fn time() -> Batch<'static> {
        Batch::one(TIME, Vec::new())
    }

    fn schema() -> Batch<'static> {
        Batch::one(SCHEMA, Vec::new())
    }

    fn register(server: &ServerState) -> Batch<'_> {
        let heard = to_integer(server.heard.0);
        let parameters = parameters![
            Uuid::from_u128(server.id.0),
            &*server.version,
            &*server.address,
            i64::from(server.level),
            server.started_at.0,
            server.heard_at.0,
            heard
        ];
        let mut batch = Batch::one(REGISTER, parameters);
        batch.add(FORGET, parameters![heard.saturating_sub(to_integer(SERVER_FORGOTTEN_AFTER.0))]);
        batch
    }

    fn servers() -> Batch<'static> {
        Batch::one(ALL, Vec::new())
    }

    fn leave(server: ServerId) -> Batch<'static> {
        let id = Uuid::from_u128(server.0);
        let mut batch = Batch::one(LEAVE, parameters![id]);
        batch.add(END_LEASES, parameters![id]);
        batch.add(TELL, Vec::new());
        batch
    }

    fn released() -> Batch<'static> {
        Batch::one(RELEASED, Vec::new())
    }

    fn lease(service: Service, server: ServerId, until: i64, now: Now) -> Batch<'static> {
        let (name, id) = (service.name(), Uuid::from_u128(server.0));
        let mut batch = Batch::one(LEASE, parameters![name, id, until, to_integer(now.mono.0)]);
        batch.add(HOLDER, parameters![name]);
        batch
    }
}
