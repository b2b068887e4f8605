//! A consumer after the first design: it locks the leader key with a session, lists, sorts, claims each entry by
//! check-and-set, runs it, deletes it, and renews its session between tasks.

use std::{
    fs::File,
    io::Write as _,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use super::stage::{Entry, List};

/// A consumer.
pub(super) struct Classic<'a> {
    pub(super) list: List,
    pub(super) ledger: String,
    /// How many tasks it does before it gives up leadership.
    pub(super) reign: u32,
    /// How often it does so. Then it leads until nothing is left.
    pub(super) handovers: u32,
    /// It ends when this is true.
    pub(super) ends: &'a AtomicBool,
    /// How often it led.
    pub(super) reigns: &'a AtomicU32,
}

impl Classic<'_> {
    /// Leads again and again.
    pub(super) fn run(&self) {
        while !self.ends.load(Ordering::SeqCst) {
            let Some(session) = self.lead() else { return };
            let reigns = self.reigns.fetch_add(1, Ordering::SeqCst);
            self.consume(&session, if reigns < self.handovers { self.reign } else { u32::MAX });
            let key = self.list.leader_key();
            self.put(&format!("kv/{key}?release={session}"), "");
            self.put(&format!("session/destroy/{session}"), "");
            // Somebody else may lead now.
            thread::sleep(Duration::from_millis(300));
        }
    }

    /// Consumes once without a leader key, beside others that do the same.
    pub(super) fn run_beside(&self) {
        let session = self.session();
        self.consume(&session, u32::MAX);
    }

    /// Locks the leader key. Returns its session.
    ///
    /// It asks for the key only when nobody holds it: a request that Consul works on while the session of the leader ends
    /// gets the key without the lock-delay.
    fn lead(&self) -> Option<String> {
        let session = self.session();
        let key = self.list.leader_key();
        loop {
            self.put(&format!("session/renew/{session}"), "");
            if self.is_free(&key) && self.put(&format!("kv/{key}?acquire={session}"), "classic") == "true" {
                return Some(session);
            }
            if self.ends.load(Ordering::SeqCst) {
                return None;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Whether no session holds this key. Waits up to a second for that.
    fn is_free(&self, key: &str) -> bool {
        let read = |rest: &str| {
            let answer = self.list.consul.ask("GET", &format!("/v1/kv/{key}{rest}"), "").ok()?;
            let entry: Value = serde_json::from_str(&answer).ok()?;
            entry[0]["Session"].is_string().then(|| entry[0]["ModifyIndex"].clone())
        };
        read("").is_none_or(|held| read(&format!("?index={held}&wait=1s")).is_none())
    }

    fn session(&self) -> String {
        let session = json!({ "TTL": "2s", "LockDelay": "200ms", "Behavior": "release" }).to_string();
        let answer: Value = serde_json::from_str(&self.put("session/create", &session)).unwrap();
        answer["ID"].as_str().unwrap().to_owned()
    }

    fn consume(&self, session: &str, reign: u32) {
        let mut waiting: Vec<Entry> = self.list.entries();
        waiting.retain(|entry| {
            let taken = &entry.json()["taskTaken"];
            *taken == json!("false") || *taken == json!(false)
        });
        waiting.sort_by_key(|entry| entry.json()["taskTime"].as_str().unwrap().parse::<u64>().unwrap());
        let mut done = 0;
        for entry in waiting {
            if done == reign {
                return;
            }
            self.put(&format!("session/renew/{session}"), "");
            done += u32::from(self.claim_and_run(&entry));
        }
    }

    fn claim_and_run(&self, entry: &Entry) -> bool {
        let mut value = entry.json();
        value["taskTaken"] = json!("true");
        let path = format!("kv/{}/{}", self.list.name, entry.key);
        if self.put(&format!("{path}?cas={}", entry.index), &value.to_string()) != "true" {
            return false;
        }
        let n = &value["taskPara"]["n"];
        let mut ledger = File::options().append(true).create(true).open(&self.ledger).unwrap();
        ledger.write_all(format!("classic begins {n}\n").as_bytes()).unwrap();
        thread::sleep(Duration::from_millis(1));
        ledger.write_all(format!("classic ends {n}\n").as_bytes()).unwrap();
        self.list.consul.ask("DELETE", &format!("/v1/{path}"), "").unwrap();
        true
    }

    fn put(&self, path: &str, body: &str) -> String {
        self.list.consul.ask("PUT", &format!("/v1/{path}"), body).unwrap().trim().to_owned()
    }
}
