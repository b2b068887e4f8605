//! Servers on the database.

use windlass_store::{Now, SERVER_FORGOTTEN_AFTER, ServerId, ServerState, Service};

use super::{
    commit::NOW,
    connection::Connection,
    migrate::VERSION,
    script::{Script, cells},
};
use crate::rows::{servers::ServerSql, to_integer};

impl ServerSql for Connection {
    const VERSION: i64 = VERSION;

    fn time() -> Script {
        Script::one(&format!("SELECT {NOW}"), [])
    }

    fn schema() -> Script {
        Script::one("SELECT schema_version, readable_from FROM windlass_meta", [])
    }

    fn register(server: &ServerState) -> Script {
        let heard = to_integer(server.heard.0);
        let row = cells![
            server.id.0,
            &*server.version,
            &*server.address,
            server.level,
            server.started_at.0,
            server.heard_at.0,
            heard
        ];
        let mut script = Script::default();
        script.insert(
            "INSERT INTO windlass_server (id, version, address, level, started_at, heard_at, heard)",
            [row],
            "ON DUPLICATE KEY UPDATE version = VALUES(version), address = VALUES(address), level = VALUES(level),
             started_at = VALUES(started_at), heard_at = VALUES(heard_at), heard = VALUES(heard)",
        );
        let silent = heard.saturating_sub(to_integer(SERVER_FORGOTTEN_AFTER.0));
        script.add("DELETE FROM windlass_server WHERE heard <= ?", cells![silent]);
        script
    }

    fn servers() -> Script {
        Script::one(
            "SELECT id, version, address, level, started_at, heard_at, heard FROM windlass_server
             ORDER BY started_at, id",
            [],
        )
    }

    fn leave(server: ServerId) -> Script {
        let mut script = Script::one("DELETE FROM windlass_server WHERE id = ?", cells![server.0]);
        script.add("UPDATE windlass_service SET ends = 0 WHERE holder = ?", cells![server.0]);
        script
    }

    fn released() -> Script {
        Script::one("SELECT name FROM windlass_service WHERE ends = 0", [])
    }

    fn lease(service: Service, server: ServerId, until: i64, now: Now) -> Script {
        let (name, mono) = (service.name(), to_integer(now.mono.0));
        let mut script = Script::default();
        // The row is made by the first server, and locked while it is decided which one leads. Assignments are made in
        // their order, so the holder is compared before it changes.
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
        script.add("SELECT holder, fence, ends FROM windlass_service WHERE name = ?", cells![name]);
        script
    }
}
