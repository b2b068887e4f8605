//! Bits flip in rows of a store while its server is down: each harms its own task only.

use std::{fs, path::Path, process::Command, time::Duration};

use crate::site::{Site, store, text, until, until_within};

const FLOWS: &str = "
flow: good
steps: [{ name: one, run: m.echo }]
---
flow: lonely
steps: [{ name: one, run: nobody.serves }]
";

/// Later than the due time of a resting task.
const PATIENCE: Duration = Duration::from_secs(90);

fn start(site: &Site, arguments: &[&str]) -> String {
    let output = site.run(&[&["task", "start"], arguments].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    text(&output.stdout).trim().to_owned()
}

/// Ends the server, so that all it knows is in the file.
fn stop(site: &mut Site) {
    let pid = site.children[0].id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert!(site.children[0].wait().unwrap().success());
    site.children.clear();
}

/// Flips one bit of each place where `needle` is written.
fn flip(path: &Path, needle: &str) {
    let mut bytes = fs::read(path).unwrap();
    let places: Vec<usize> = bytes
        .windows(needle.len())
        .enumerate()
        .filter_map(|(at, window)| (window == needle.as_bytes()).then_some(at))
        .collect();
    assert!(!places.is_empty(), "{needle} is in the file");
    places.iter().for_each(|at| bytes[*at] ^= 1);
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_flipped_bit_harms_its_own_task_only() {
    let dir = tempfile::tempdir().unwrap();
    let address = store(dir.path());
    let mut site = Site::open(dir, &address, &[]);
    site.apply(FLOWS);
    // One that waits in a queue, one that has ended, and one that rests: a minute is how far timers are read ahead.
    let ready = start(&site, &["lonely", "-p", "note=needle-ready"]);
    let ended = start(&site, &["lonely", "-p", "note=needle-ended"]);
    assert_eq!(site.run(&["task", "cancel", &ended]).status.code(), Some(0));
    let resting = start(&site, &["good", "-p", "note=needle-resting", "--at", "+62s"]);
    let sound = [start(&site, &["good"]), start(&site, &["lonely"])];
    stop(&mut site);
    let file = site.dir.path().join("windlass.db");
    for needle in ["needle-ready", "needle-ended", "needle-resting"] {
        flip(&file, needle);
    }

    let doctor = site.run(&["doctor", "--store", &address]);
    for id in [&ready, &ended, &resting] {
        assert!(text(&doctor.stdout).contains(id.as_str()), "{doctor:?}");
    }
    site.restart(&address);
    site.start_worker();
    until("the sound task goes on", || {
        (site.json(&["task", "show", &sound[0]])["status"] == "succeeded").then_some(())
    });
    // Lists leave the damaged tasks out, and looking at one says that it is damaged.
    let listed = site.json(&["task", "list"]);
    let listed: Vec<&str> =
        listed["items"].as_array().unwrap().iter().map(|task| task["id"].as_str().unwrap()).collect();
    assert_eq!(listed, [sound[1].as_str(), sound[0].as_str()]);
    for id in [&ready, &ended, &resting] {
        let shown = site.run(&["task", "show", id]);
        assert!(text(&shown.stderr).contains("damaged"), "{shown:?}");
    }
    // Each is named by an alarm once the server has met it: the resting one when its time is near.
    let mut expected = [&ready, &ended, &resting].map(|id| format!("damaged_row.{id}"));
    expected.sort();
    until_within(PATIENCE, "an alarm names each damaged task", || {
        let alarms = site.json(&["alarm", "list"]);
        let alarms = alarms["items"].as_array().unwrap().iter();
        let mut ids: Vec<String> = alarms.map(|alarm| alarm["id"].as_str().unwrap().to_owned()).collect();
        ids.sort();
        (ids == expected).then_some(())
    });
    // Timers go on.
    let later = start(&site, &["good", "--at", "+1s"]);
    until("the timer fires", || {
        (site.json(&["task", "show", &later])["status"] == "succeeded").then_some(())
    });
}
