//! Simulated devices: answers every job on `NAME/run` with success on `NAME/done`, for load tests.
//!
//! ```text
//! cargo run --release -p windlass-brokers --features mqtt --example device_farm -- mqtt://127.0.0.1:1883
//! ```

use std::time::{Duration, Instant};

use windlass_brokers::{DeviceCommand, DeviceMessage, DeviceNetwork as _, Mqtt, MqttSettings, MqttVersion};

/// Messages received at once.
const AT_ONCE: usize = 500;

/// How often the number of jobs is printed.
const PRINT_EVERY: Duration = Duration::from_secs(1);

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::args().nth(1).ok_or("the URL of the broker is missing")?;
    let settings = MqttSettings {
        client_id: "device-farm".to_owned(),
        filters: vec!["+/run".to_owned()],
        version: MqttVersion::V3,
    };
    let connection = Mqtt::open(&url, settings)?.connect().await?;
    let (mut jobs, mut printed, mut printed_at) = (0_u64, 0, Instant::now());
    loop {
        let messages = connection.receive(AT_ONCE, PRINT_EVERY).await?;
        let answers: Vec<DeviceCommand> = messages.iter().filter_map(answer).collect();
        for outcome in connection.publish(&answers).await? {
            outcome?;
        }
        let receipts: Vec<u64> = messages.iter().map(|message| message.receipt).collect();
        connection.acknowledge(&receipts).await?;
        jobs += answers.len() as u64;
        if printed_at.elapsed() >= PRINT_EVERY {
            if jobs > printed {
                println!(
                    "{jobs} jobs, {:.0}/s",
                    (jobs - printed) as f64 / printed_at.elapsed().as_secs_f64()
                );
            }
            (printed, printed_at) = (jobs, Instant::now());
        }
    }
}

/// The answer to a job, if the message is one.
fn answer(message: &DeviceMessage) -> Option<DeviceCommand> {
    let device = message.topic.strip_suffix("/run")?;
    let mut answer: serde_json::Value = serde_json::from_slice(&message.payload).ok()?;
    answer.as_object_mut()?.insert("device".to_owned(), device.into());
    answer.as_object_mut()?.insert("success".to_owned(), true.into());
    Some(DeviceCommand { topic: format!("{device}/done"), payload: answer.to_string().into_bytes() })
}
