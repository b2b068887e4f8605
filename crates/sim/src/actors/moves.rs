//! Moves the store into another one while tasks are under way: the server stops in good order, an export is imported into
//! an empty store, and the server starts on that.

use std::{rc::Rc, sync::Arc};

use windlass_core::{Act, ActState, Task, TaskId, Timestamp};
use windlass_store::{
    Now, Snapshot as _, Store as _, archive,
    memory::{MemorySink, MemorySnapshot},
    resident::Resident,
};

use super::servers;
use crate::{
    judge::Seen,
    world::{Host, MachineClock, World, Wrong},
};

/// The most moves in a world.
const MOVES_MAX: u64 = 3;

/// The longest time until the next move, in milliseconds.
const EVERY_MS: u64 = 10_000;

/// The interval of looks at a server that is to run, or to have stopped, in milliseconds.
const LOOK_EVERY_MS: u64 = 20;

/// The key for signing tokens of a store that an import has filled: tokens of the old store are not valid there.
const TOKEN_KEY: [u8; 32] = [8; 32];

/// The only server: a database would be moved in the same way.
const SERVER: usize = 0;

/// Moves the store until the world is calm.
pub(crate) async fn move_store(world: Rc<World>) {
    for _ in 0..world.within(1..=MOVES_MAX) {
        world.sleep(world.within(100..=EVERY_MS)).await;
        while world.servers.live(SERVER).is_none() || world.is_paused(Host::Server(SERVER)) {
            world.sleep(LOOK_EVERY_MS).await;
        }
        if world.is_calm() {
            return;
        }
        servers::stop(&world, SERVER);
        while world.is_up(Host::Server(SERVER)) {
            world.sleep(LOOK_EVERY_MS).await;
        }
        match copy(&world).await {
            Ok(Some(inputs)) => {
                world.count("store moved");
                world.tell(|| "the store is another one, filled by an import".to_owned());
                world.see(Seen::Moved(inputs));
            }
            Ok(None) => world.count("store not moved: damaged"),
            Err(message) => world.see(Seen::NotMoved(message)),
        }
        servers::start(&world, SERVER);
    }
}

/// Copies the store; nothing is copied where rows are damaged. Returns the tasks as they are in the new store.
async fn copy(world: &Rc<World>) -> Result<Option<Vec<Arc<Task>>>, String> {
    let Some(old) = world.servers.sink() else { return Ok(None) };
    let now = MachineClock::start(world, Wrong::default(), Timestamp(0)).now(world);
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let mut from = MemorySnapshot::open(&old, now).await.map_err(|error| told(&error))?;
    let mut file = Vec::new();
    let exported = archive::export(&mut from, &mut file, &mut |_| {}, now).await;
    match exported {
        Ok(_) => {}
        Err(_) if !from.store().quarantine().is_empty() => return Ok(None),
        Err(error) => return Err(told(&error)),
    }
    let new = old.successor(TOKEN_KEY);
    let tasks = fill(&new, &file, &mut from, now).await?;
    world.servers.replace_sink(new);
    Ok(Some(tasks))
}

/// Imports the file into empty rows, and compares both stores.
async fn fill(
    rows: &MemorySink,
    file: &[u8],
    from: &mut MemorySnapshot,
    now: Now,
) -> Result<Vec<Arc<Task>>, String> {
    let told = |error: &dyn std::fmt::Display| error.to_string();
    let to = Resident::open(Arc::new(rows.clone()), now).await.map_err(|error| told(&error))?;
    archive::import(&to, &mut &*file, &mut |_| {}, now).await.map_err(|error| told(&error))?;
    to.flush().await.map_err(|error| told(&error))?;
    let submitted = from.submitted(None, usize::MAX).await.map_err(|error| told(&error))?;
    let ids: Vec<TaskId> = submitted.iter().map(|submitted| submitted.id).collect();
    let before = from.store().load(&ids).await.map_err(|error| told(&error))?;
    let after = to.load(&ids).await.map_err(|error| told(&error))?;
    let mut tasks = Vec::new();
    for (id, (before, after)) in ids.iter().zip(before.into_iter().zip(after)) {
        let (Some(before), Some(after)) = (before, after) else {
            return Err(format!("task {id} is not in both stores"));
        };
        if before.task.state != after.task.state || before.task.flow != after.task.flow {
            return Err(format!("task {id} is {:?}, and was {:?}", after.task, before.task));
        }
        let had = before.held().into_iter().chain(before.handed_out).chain(before.awaited);
        let is_current = |act: &Act| matches!(act.state, ActState::Ready | ActState::Parked);
        let is_current = |key| after.task.act(key).is_some_and(is_current);
        if let Some(key) = had.filter(|key| is_current(*key)).find(|key| !after.handed_out.contains(key)) {
            return Err(format!("task {id}: nobody has had {key:?} in the new store"));
        }
        tasks.push(after.task);
    }
    Ok(tasks)
}
