//! Properties of every signature, for fuzzing: see [`crate::malformed`].

use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::{
    settings::{MachinerySection, MachinerySettings},
    signature::Signature,
    task,
};
use crate::malformed::check_message;

/// Treats the bytes as a signature: one that is taken makes a document, and is the same after it was sent on.
pub fn signature(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let settings = settings();
    let signature = match Signature::parse(text) {
        Ok(signature) => signature,
        Err(why) => return check_message(&why),
    };
    match task::document(&signature, text, task::KeptText::IfFollowed, &settings) {
        Ok(document) => {
            // Headers may be nested deeper than parameters. Then the document is refused.
            let fields = |text: &str| -> BTreeMap<String, Box<RawValue>> {
                serde_json::from_str(text).expect("a document is JSON")
            };
            let params = fields(fields(&document)["params"].get());
            let follows = |of: Result<Vec<Signature>, String>| !of.expect("they were read before").is_empty();
            let callback = signature.chord_callback().expect("it was read before");
            let is_followed =
                follows(signature.on_success()) || follows(signature.on_error()) || callback.is_some();
            let kept =
                params.get("signature").map(|kept| serde_json::from_str(kept.get()).expect("a string"));
            assert_eq!(kept, is_followed.then(|| text.to_owned()));
            let sent_on = signature.with_args(&[], &[]).expect("arguments that were read can be written");
            let again = Signature::parse(&sent_on).expect("what was sent on can be read");
            assert_eq!(again.uuid(), signature.uuid());
            let values = |signature: &Signature| -> Vec<String> {
                let args = signature.args().expect("they were read before");
                args.iter().map(|arg| arg.value.get().to_owned()).collect()
            };
            assert_eq!(values(&again), values(&signature));
        }
        Err(why) => check_message(&why),
    }
}

fn settings() -> MachinerySettings {
    let section = MachinerySection {
        broker: "redis://127.0.0.1".to_owned(),
        backend: None,
        queues: Vec::new(),
        exchange: None,
        binding_key: None,
        module: None,
        timeout: None,
        results_expire_in: None,
        tasks_uuid_separator: None,
        mode: None,
    };
    MachinerySettings::read(section).expect("these settings are usable")
}
