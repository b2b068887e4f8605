//! Devices.

use std::borrow::Cow;

use reqwest::Method;
use windlass_api::{
    ApplyDevices, Device, DeviceDocument, DeviceLogEntry, DeviceMessage, DevicesApplied, List, ReleaseLock,
    ReleasedLock,
};

use super::{
    Client,
    request::{Details, encode},
};
use crate::Error;

/// The most devices of a page, so that long lists need few calls.
const PAGE_ITEMS: &str = "1000";

impl Client {
    /// Declares devices: creates them, or replaces those with the same names. At most 10,000 and 8 MiB at a time.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 422 if one of them cannot be used; nothing is stored then.
    pub async fn apply_devices(&self, devices: Vec<DeviceDocument>) -> Result<DevicesApplied, Error> {
        self.post(&["v1", "devices"], &ApplyDevices { devices }).await
    }

    /// Declares a device: creates it, or replaces the one with this name.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 422 if it cannot be used.
    pub async fn apply_device(&self, name: &str, device: &DeviceDocument) -> Result<Device, Error> {
        let details = Details { body: Some(encode(device)?), ..Details::default() };
        self.call(Method::PUT, &["v1", "devices", name], details).await
    }

    /// The devices that have all of these labels, each `key=value`, and are online or offline as `online` says; by name.
    ///
    /// # Errors
    /// As every call: see [`Error`].
    pub async fn devices(&self, labels: &[String], online: Option<bool>) -> Result<List<Device>, Error> {
        let mut filter: Vec<(&str, Cow<'_, str>)> = vec![("limit", PAGE_ITEMS.into())];
        filter.extend(labels.iter().map(|label| ("label", label.as_str().into())));
        filter.extend(online.map(|online| ("online", online.to_string().into())));
        self.all_pages(&["v1", "devices"], &filter).await
    }

    /// One device with the tasks that wait for it.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if it was not declared.
    pub async fn device(&self, name: &str) -> Result<Device, Error> {
        self.get(&["v1", "devices", name]).await
    }

    /// The newest entries in the log of a device, the newest first: at most `limit`, from 1 to 1000.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if there is neither a device of this name nor an entry.
    pub async fn device_log(&self, name: &str, limit: usize) -> Result<List<DeviceLogEntry>, Error> {
        self.get_with(&["v1", "devices", name, "log"], &[("limit", limit.to_string().into())]).await
    }

    /// Messages of devices, the newest first: at most `limit`. `filter` has pairs of `device`, `topic` and `since`, as
    /// `GET /v1/device-messages` takes them.
    ///
    /// # Errors
    /// When the request does not succeed.
    pub async fn device_messages(
        &self,
        filter: &[(&str, String)],
        limit: usize,
    ) -> Result<List<DeviceMessage>, Error> {
        self.newest(&["v1", "device-messages"], filter, limit).await
    }

    /// Takes a device from its task; the next task that waits gets it. The device is not stopped.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if it was not declared, or nobody has it.
    pub async fn unlock_device(&self, name: &str, reason: &str) -> Result<ReleasedLock, Error> {
        self.post(&["v1", "devices", name, "unlock"], &ReleaseLock { reason: reason.to_owned() }).await
    }

    /// Removes a device. Returns its last state. With `force` also while a task has it or waits for it.
    ///
    /// # Errors
    /// [`Error::Refused`] with status 404 if it was not declared, and with status 409 if it is in use.
    pub async fn remove_device(&self, name: &str, force: bool) -> Result<Device, Error> {
        let query: &[(&str, Cow<'_, str>)] = if force { &[("force", Cow::Borrowed("true"))] } else { &[] };
        self.call(Method::DELETE, &["v1", "devices", name], Details { query, ..Details::default() }).await
    }
}
