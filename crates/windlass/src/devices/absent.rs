//! A build without MQTT.

use std::sync::Arc;

use windlass_brokers::DeviceNetwork;

use super::DeviceSettings;

/// # Errors
/// Always: the message contains the fix.
pub(super) fn network(_: &DeviceSettings) -> anyhow::Result<Arc<dyn DeviceNetwork>> {
    anyhow::bail!(
        "`[devices]` in the configuration file: this build has no MQTT. Build with `--features mqtt`, or remove the section"
    )
}
