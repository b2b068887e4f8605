//! Alarms become messages. Alarms are read, not subscribed to: each is stored with how often it was raised, so a server that
//! was down reports it after its start.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use windlass_core::{Alarm, AlarmId};
use windlass_engine::{EngineError, services::Unreadable};
use windlass_store::Service;

use super::{delivery, message::Message, settings::WebhookSettings};
use crate::http::App;

/// The interval at which alarms are read.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Alarms read at once, those raised last first; more where all of these are new.
const PAGE: usize = 100;
const PAGE_MAX: usize = 10_000;

/// Older alarms are not reported. Idempotency keys, by which an alarm is reported once, are kept for a day at least.
const AGE_MS_MAX: i64 = 23 * 3_600_000;

/// Reports alarms, for ever. One server does this: the one that announces events.
pub(super) async fn watch(app: Arc<App>, webhooks: Arc<[WebhookSettings]>) {
    let mut reported = BTreeMap::new();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        if !app.engine.leads_service(Service::Announcing, app.clock.now()) {
            // Another server reports them now. What it has reported is known by idempotency keys.
            reported.clear();
            continue;
        }
        if let Err(error) = look(&app, &webhooks, &mut reported).await {
            tracing::warn!(error, "alarms cannot be reported to webhooks; trying again");
        }
    }
}

/// Reports the alarms that were raised since `reported`, which says how often each was raised.
async fn look(
    app: &App,
    webhooks: &[WebhookSettings],
    reported: &mut BTreeMap<AlarmId, u32>,
) -> Result<(), String> {
    let read = |limit| async move {
        let alarms = app.engine.alarms(true, limit).await;
        alarms.map_err(|error: EngineError| error.to_string())
    };
    let is_new = |alarm: &Alarm| reported.get(&alarm.id).is_none_or(|raised| *raised < alarm.raised);
    let mut alarms = read(PAGE).await?;
    if alarms.len() == PAGE && alarms.iter().all(is_new) {
        alarms = read(PAGE_MAX).await?;
    }
    let since = app.clock.now().wall.0 - AGE_MS_MAX;
    let new: Vec<Alarm> =
        alarms.iter().filter(|alarm| is_new(alarm) && alarm.raised_at.0 >= since).cloned().collect();
    let (mut of, mut messages) = (Vec::new(), Vec::new());
    for alarm in &new {
        for webhook in webhooks.iter().filter(|webhook| webhook.wants_alarm(alarm.kind)) {
            of.push(alarm.id.clone());
            messages.push((webhook, Message::of_alarm(alarm)));
        }
    }
    let started = match messages.is_empty() {
        true => Vec::new(),
        false => delivery::start(app, messages).await,
    };
    // What was not read now is older than all that was, and is not looked at again.
    let mut known: BTreeMap<AlarmId, u32> =
        alarms.into_iter().map(|alarm| (alarm.id, alarm.raised)).collect();
    let mut failure = Ok(());
    for (id, started) in of.iter().zip(started) {
        match started {
            Ok(()) => {}
            Err(Unreadable::Refused(why)) => tracing::error!(alarm = %id, why, "a webhook is not sent"),
            Err(Unreadable::Later(why)) => {
                known.remove(id);
                failure = Err(why);
            }
        }
    }
    *reported = known;
    failure
}
