//! Changes that have or have not reached the disk while another operation overtakes them.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Waker},
    time::Duration,
};

use windlass_core::{Command, During};
use windlass_store::{ADOPTION_GRACE, Outcome};

use crate::{
    World,
    faults::staging::{GatedCase, begin},
    gate::Gate,
    history::line,
    storing::{parking, unique},
    world::FIRST,
};

/// The cases about concurrent operations.
pub(crate) fn cases() -> Vec<GatedCase> {
    vec![
        |world, gate| Box::pin(a_unique_task_that_is_written_while_others_look_for_it_stands(world, gate)),
        |world, gate| Box::pin(what_a_grace_leaves_waits_for_a_resume_on_its_way(world, gate)),
        |world, gate| Box::pin(a_resumed_attempt_waits_for_the_pause_and_the_resume_after_it(world, gate)),
    ]
}

async fn a_unique_task_that_is_written_while_others_look_for_it_stands(mut world: World, gate: Arc<Gate>) {
    let flow = unique::flow(&mut world, During::Running).await;
    gate.close();
    let first = unique::new(&mut world, &flow, "a");
    let id = first.task.id;
    let mut submitting = begin(&mut world, vec![first.into()]);
    poll_until(&mut submitting, || gate.holds_a_write());
    gate.hold_reads();
    let again = unique::new(&mut world, &flow, "a");
    let mut repeating = begin(&mut world, vec![again.into()]);
    poll_until(&mut repeating, || gate.holds_a_read());
    gate.open();
    assert_eq!(submitting.await.expect("it is written"), [Outcome::Committed]);
    gate.let_read_go(0);
    assert_eq!(repeating.await.expect("nothing fails"), [Outcome::Repeats { task: id }]);
}

/// Polls `future`, which must stay pending, until `is_so_far` returns true: if the rows are on a disk, that takes a
/// while.
fn poll_until<T>(future: &mut (impl Future<Output = T> + Unpin), is_so_far: impl Fn() -> bool) {
    const POLLS_MAX: usize = 10_000;
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..POLLS_MAX {
        if is_so_far() {
            return;
        }
        assert!(Pin::new(&mut *future).poll(&mut context).is_pending());
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("it never got this far");
}

async fn what_a_grace_leaves_waits_for_a_resume_on_its_way(mut world: World, gate: Arc<Gate>) {
    let (_, claimed) = parking::paused(&mut world).await;
    world.reopen().await;
    let session = world.session(2).await;
    gate.close();
    let resume = world.decide(claimed.id.task, &Command::Resume { by: None }).await;
    let resuming = begin(&mut world, vec![resume.into()]);
    world.pass(ADOPTION_GRACE);
    assert!(world.claim(session, 9).await.is_empty(), "on disk it is paused");
    gate.open();
    assert_eq!(resuming.await.expect("it is written"), [Outcome::Committed]);
    assert_eq!(world.claim_one(session).await.id.key, FIRST);
}

async fn a_resumed_attempt_waits_for_the_pause_and_the_resume_after_it(mut world: World, gate: Arc<Gate>) {
    let flow = world.add_flow(line("flow", 1)).await;
    let id = world.submit(&flow).await;
    world.apply(id, Command::Pause { by: None }).await;
    let session = world.session(1).await;
    gate.close();
    let mut changing = Vec::new();
    for command in [Command::Resume { by: None }, Command::Pause { by: None }, Command::Resume { by: None }] {
        let change = world.decide(id, &command).await;
        changing.push(begin(&mut world, vec![change.into()]));
        poll_until(&mut changing[0], || gate.holds_a_write());
    }
    for (committing, why) in changing.drain(..2).zip(["a pause is on its way", "on disk it is paused"]) {
        gate.let_write_go();
        assert_eq!(committing.await.expect("it is written"), [Outcome::Committed]);
        assert!(world.claim(session, 9).await.is_empty(), "{why}");
    }
    gate.open();
    assert_eq!(changing.remove(0).await.expect("it is written"), [Outcome::Committed]);
    assert_eq!(world.claim_one(session).await.id.key, FIRST);
}
