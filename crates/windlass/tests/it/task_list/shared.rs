//! One list, consumed by Windlass and by consumers of the first design.

use std::{
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
    thread,
    time::{Duration, Instant},
};

use super::{
    classic::Classic,
    stage::{List, Stage},
};
use crate::site::{until, until_within};

/// The tasks of the list.
const TASKS: u32 = 1_000;

/// All of it takes about half of this.
const PATIENCE: Duration = Duration::from_secs(60);

/// The tasks that each consumer does before the other one leads.
const REIGN: u32 = 100;

/// How often the consumer of the first design gives up leadership.
const HANDOVERS: u32 = 3;

#[test]
fn each_task_of_a_shared_list_is_done_once_and_by_one_leader_at_a_time() {
    let Some(list) = List::new("shared-list") else { return };
    list.put_all(TASKS);
    let rest = format!("leader = \"{}\"\nlease = \"2s\"", list.leader_key());
    let mut stage = Stage::new(list, &rest);
    let began = Instant::now();
    let say = |what: &str| eprintln!("after {:.1} s {what}", began.elapsed().as_secs_f64());
    let (ends, reigns) = (AtomicBool::new(false), AtomicU32::new(0));
    let classic = Classic { list, ledger: stage.ledger_path(), reign: REIGN, handovers: HANDOVERS, ends: &ends, reigns: &reigns };
    thread::scope(|scope| {
        scope.spawn(|| classic.run());
        // Also after a panic, so that the other thread ends.
        let _ends = Ends(&ends);
        let is_done = |stage: &Stage| stage.ledger().len() == 2 * TASKS as usize;
        for ending in [Stage::kill, Stage::end, Stage::kill] {
            let before = stage.done_by("windlass").len();
            until("the server has led for a while", || {
                let did = stage.done_by("windlass").len() - before;
                (did >= REIGN as usize || is_done(&stage)).then_some(())
            });
            say("the server ends");
            let led = reigns.load(Ordering::SeqCst);
            ending(&mut stage);
            until("the other consumer leads", || {
                (reigns.load(Ordering::SeqCst) > led || is_done(&stage)).then_some(())
            });
            say("the other consumer leads");
            stage.start();
        }
        until_within(PATIENCE, "all are done", || is_done(&stage).then_some(()));
    });
    list.is_empty();
    let (ours, theirs) = (stage.done_by("windlass"), stage.done_by("classic"));
    eprintln!("windlass did {}, the other {} in {} reigns", ours.len(), theirs.len(), reigns.into_inner());
    let mut all = [&ours[..], &theirs[..]].concat();
    all.sort_unstable();
    assert_eq!(all, (0..TASKS).collect::<Vec<_>>(), "each once");
    assert!(
        ours.len() >= 2 * REIGN as usize && theirs.len() >= 2 * REIGN as usize,
        "leadership changed hands"
    );
    // Nobody began while another task was under way.
    let ledger = stage.ledger();
    for (begins, ends) in ledger.iter().step_by(2).zip(ledger.iter().skip(1).step_by(2)) {
        assert_eq!(begins.replace("begins", "ends"), *ends);
    }
    assert!(stage.alarms().is_empty(), "{:?}", stage.alarms());
}

struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}
