//! The network of devices: its configuration, and the loops that give devices their jobs.
//!
//! | file | concern |
//! |---|---|
//! | `settings.rs` | the configuration |
//! | `absent.rs` | a build without MQTT: a refusal |

#[cfg(not(feature = "mqtt"))]
mod absent;
mod settings;

use std::sync::Arc;

use windlass_brokers::DeviceNetwork;
use windlass_engine::{
    Engine, loops,
    services::{DeviceKeeper, MESSAGE_BYTES_KEPT},
};

use crate::{clock::SystemClock, loops::Loops};

pub(crate) use settings::{DeviceSettings, DevicesSection, read};

/// The network of devices of a server, if it has one.
pub(crate) struct Devices {
    network: Option<(Arc<dyn DeviceNetwork>, DeviceSettings)>,
}

/// The network of devices of a server that runs.
pub(crate) struct RunningDevices {
    keeper: Option<Arc<DeviceKeeper>>,
}

impl Devices {
    /// Makes the client of the network, without connecting.
    ///
    /// # Errors
    /// When the URL is invalid, or MQTT is not in this build.
    pub(crate) fn new(settings: Option<&DeviceSettings>) -> anyhow::Result<Self> {
        let open = |settings: &DeviceSettings| anyhow::Ok((network(settings)?, settings.clone()));
        Ok(Self { network: settings.map(open).transpose()? })
    }

    /// How many bytes of messages of devices are kept.
    pub(crate) fn message_bytes(&self) -> u64 {
        let settings = self.network.as_ref().map(|(_, settings)| settings);
        settings.map_or(MESSAGE_BYTES_KEPT, |settings| settings.keep_messages_mib << 20)
    }

    /// Starts the loops that give devices their jobs. The caller must end them before it ends the loops.
    ///
    /// # Errors
    /// When a rule about devices that are learned is invalid.
    pub(crate) fn start(
        self,
        engine: &Arc<Engine>,
        clock: &Arc<SystemClock>,
        running: &mut Loops,
    ) -> anyhow::Result<RunningDevices> {
        let keeper = |(network, settings): (Arc<dyn DeviceNetwork>, DeviceSettings)| {
            let keeper = DeviceKeeper::new(engine.clone(), network).locked_too_long(settings.locked_too_long);
            anyhow::Ok(Arc::new(keeper.learn_by(settings.learn()?)))
        };
        let keeper = self.network.map(keeper).transpose()?;
        if let Some(keeper) = &keeper {
            running.spawn("gives devices their jobs", loops::give_jobs(keeper.clone(), clock.clone()));
            running.spawn("hears devices", loops::hear_devices(keeper.clone(), clock.clone()));
        }
        Ok(RunningDevices { keeper })
    }
}

impl RunningDevices {
    /// Leaves the network, so that another server goes on at once.
    pub(crate) async fn end(self) {
        if let Some(keeper) = self.keeper {
            keeper.end().await;
        }
    }
}

#[cfg(feature = "mqtt")]
fn network(settings: &DeviceSettings) -> anyhow::Result<Arc<dyn DeviceNetwork>> {
    use anyhow::Context as _;
    use windlass_brokers::{Mqtt, MqttSettings, MqttVersion};

    let mqtt = MqttSettings {
        client_id: settings.client_id.clone(),
        filters: settings.topics.clone(),
        version: match settings.protocol {
            "5" => MqttVersion::V5,
            _ => MqttVersion::V3,
        },
    };
    let network =
        Mqtt::open(settings.broker.as_str(), mqtt).context("`devices.broker` in the configuration file")?;
    Ok(Arc::new(network))
}

#[cfg(not(feature = "mqtt"))]
use absent::network;
