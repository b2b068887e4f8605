//! Devices, their jobs, and rollouts to them.

mod device_jobs;
mod devices;
mod rollouts;
