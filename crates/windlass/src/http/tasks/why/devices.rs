//! Sentences about devices that are waited for.

use serde_json::json;
use windlass_engine::{AwaitedDevice, Reason, Why};

use super::sentences::{About, Explained, span};
use crate::http::tasks::view;

impl About<'_> {
    /// The sentence for a reason and its facts, with those of the device that it waits for.
    pub(super) fn explain_with_device(self, reason: &Reason) -> Explained {
        let (mut sentence, mut data) = self.explain(&reason.why);
        let Some(device) = &reason.device else { return (sentence, data) };
        let state = self.state_of(device);
        match &reason.why {
            Why::Offered { at, .. } if at.as_ref().is_none_or(|at| at.trouble.is_none()) => {
                sentence = format!("{} waits for the device {}, which {state}.", self.opening(), device.name);
            }
            _ => sentence += &format!(" The device {} {state}.", device.name),
        }
        data["device"] = json!({
            "name": device.name.as_str(),
            "online": device.online,
            "since": device.since.map(view::time),
        });
        (sentence, data)
    }

    /// `is offline for 5m`.
    fn state_of(self, device: &AwaitedDevice) -> String {
        let name = &device.name;
        let ago = device.since.map(|since| span(self.now, since));
        match (device.online, ago) {
            (None, _) => "is not declared: `windlass device apply` declares it".to_owned(),
            (Some(true), Some(ago)) => format!("has been online for {ago}"),
            (Some(true), None) => "counts as online".to_owned(),
            (Some(false), Some(ago)) => format!("has been offline for {ago}: `windlass device log {name}`"),
            (Some(false), None) => format!("is offline: it was never heard; `windlass device show {name}`"),
        }
    }
}
