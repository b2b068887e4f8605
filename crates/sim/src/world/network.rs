//! The network: calls to servers, each with its own fate.

use std::{
    any::Any,
    cell::{Cell, RefCell},
    collections::BTreeSet,
    future::Future,
    pin::Pin,
    rc::Rc,
};

use futures_channel::oneshot;
use windlass_core::Actor;
use windlass_engine::{AuditedOperation, audited};

use super::{Host, JobId, World};
use crate::{actors::Live, judge::Seen};

/// The handling of a call by a server.
pub(crate) type Serve<T> = Rc<dyn Fn(Rc<Live>) -> Pin<Box<dyn Future<Output = T>>>>;

/// The connection broke, or no server answers: the fate of the call is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Broken;

/// The broken connections and the open calls.
#[derive(Default)]
pub(crate) struct Network {
    cuts: RefCell<BTreeSet<(Host, usize)>>,
    made: Cell<u64>,
    /// Calls in progress at a server: the server, the caller, the job there, and the channel that reports a
    /// broken connection to the caller.
    open: RefCell<Vec<Open>>,
    /// Replies that will never be sent: their receivers must give up by themselves.
    lost: RefCell<Vec<Rc<dyn Any>>>,
}

struct Open {
    call: u64,
    server: usize,
    from: Host,
    polls: bool,
    job: JobId,
    hang_up: Rc<dyn Fn()>,
}

impl Network {
    /// Drops all messages between the two from now on, without a report.
    pub(crate) fn cut(&self, host: Host, server: usize) {
        self.cuts.borrow_mut().insert((host, server));
    }

    pub(crate) fn heal(&self, host: Host, server: usize) {
        self.cuts.borrow_mut().remove(&(host, server));
    }

    pub(crate) fn is_cut(&self, host: Host, server: usize) -> bool {
        self.cuts.borrow().contains(&(host, server))
    }

    pub(super) fn clear(&self) {
        self.open.borrow_mut().clear();
        self.lost.borrow_mut().clear();
    }

    /// Whether a server works on a poll of this host now and could answer it.
    pub(crate) fn is_heard(&self, from: Host, alive: impl Fn(usize) -> bool) -> bool {
        let open = self.open.borrow();
        open.iter().any(|open| {
            open.polls && open.from == from && !self.is_cut(from, open.server) && alive(open.server)
        })
    }
}

impl World {
    /// Calls a server. The call and its answer may arrive late, twice or never. Dropping the future closes
    /// the connection.
    pub(crate) async fn call<T: 'static>(
        self: &Rc<Self>,
        from: Host,
        to: usize,
        polls: bool,
        serve: Serve<T>,
    ) -> Result<T, Broken> {
        let call = self.network.made.get() + 1;
        self.network.made.set(call);
        let (sender, receiver) = oneshot::channel();
        let reply: Reply<T> = Rc::new(RefCell::new(Some(sender)));
        let guard = HangUp { world: self, call };
        let faults = &self.config.faults;
        let copies = if self.disturbs(faults.doubled) {
            self.count("fault: call doubled");
            2
        } else {
            1
        };
        for _ in 0..copies {
            let way = Way { call, from, to, polls, reply: reply.clone(), serve: serve.clone() };
            self.after_with(self.latency(), "call arrives", call, move |world| way.arrive(world));
        }
        // The other copy is not awaited.
        drop(reply);
        let answer = receiver.await;
        drop(guard);
        answer.unwrap_or(Err(Broken))
    }

    fn latency(&self) -> u64 {
        let faults = &self.config.faults;
        let late = self.disturbs(faults.delayed);
        if late {
            self.count("fault: message delayed");
        }
        self.within(0..=faults.latency_ms) + if late { self.within(50..=5000) } else { 0 }
    }

    fn disturbs(&self, per_mille: u64) -> bool {
        per_mille > 0 && !self.is_calm() && self.chance(per_mille)
    }

    /// A server is gone: its callers get a broken connection, unless they are disconnected.
    pub(crate) fn break_calls_to(self: &Rc<Self>, server: usize) {
        let broken = self.take_open(|open| open.server == server);
        for open in broken {
            if !self.network.is_cut(open.from, server) {
                self.after_with(self.latency(), "connection breaks", open.call, move |_| (open.hang_up)());
            }
        }
    }

    /// The server can no longer answer its calls in progress, and could until now.
    pub(crate) fn note_touch(&self, server: usize) {
        let open = self.network.open.borrow();
        for open in open.iter().filter(|open| open.polls && open.server == server) {
            self.in_touch(open.from, server);
        }
    }

    fn in_touch(&self, host: Host, server: usize) {
        if let Host::Worker(worker) = host
            && !self.network.is_cut(host, server)
            && !self.is_paused(Host::Server(server))
        {
            self.see(Seen::InTouch { worker, called: false });
        }
    }

    fn take_open(&self, which: impl Fn(&Open) -> bool) -> Vec<Open> {
        let mut open = self.network.open.borrow_mut();
        let (taken, kept) = std::mem::take(&mut *open).into_iter().partition(which);
        *open = kept;
        taken
    }

    /// The caller is gone, with its connection: the server notices, unless it is disconnected.
    fn hang_up(self: &Rc<Self>, call: u64) {
        for open in self.take_open(|open| open.call == call) {
            if open.polls {
                self.in_touch(open.from, open.server);
            }
            if !self.network.is_cut(open.from, open.server) {
                self.after_with(self.latency(), "caller hangs up", call, move |world| world.cancel(open.job));
            }
        }
    }
}

type Reply<T> = Rc<RefCell<Option<oneshot::Sender<Result<T, Broken>>>>>;

/// A call in transit.
struct Way<T> {
    call: u64,
    from: Host,
    to: usize,
    polls: bool,
    reply: Reply<T>,
    serve: Serve<T>,
}

impl<T: 'static> Way<T> {
    fn arrive(self, world: &Rc<World>) {
        if world.network.is_cut(self.from, self.to) || world.disturbs(world.config.faults.lost) {
            world.count("fault: call lost");
            world.network.lost.borrow_mut().push(self.reply);
            return;
        }
        let Some(live) = world.servers.live(self.to) else {
            let reply = self.reply;
            world.after_with(world.latency(), "connection refused", self.call, move |_| {
                answer(&reply, Err(Broken));
            });
            return;
        };
        if world.is_paused(Host::Server(self.to)) {
            // The machine accepts the connection; the server reads it when it is resumed.
            world.after_with(50, "call waits", self.call, move |world| self.arrive(world));
            return;
        }
        let Self { call, from, to, polls, reply, serve } = self;
        let (world_of_job, hang_up) = (world.clone(), reply.clone());
        // The call of a worker that has gone away since may still arrive, and that worker is not in touch.
        let is_gone = reply.borrow().as_ref().is_some_and(oneshot::Sender::is_canceled);
        let polls = polls && !is_gone;
        if let Host::Worker(worker) = from
            && polls
        {
            world.see(Seen::InTouch { worker, called: true });
        }
        let job = world.spawn(Host::Server(to), async move {
            let output = match from {
                Host::Person(_) => audited(by_operator(from), serve(live)).await,
                _ => serve(live).await,
            };
            Way::<T>::go_back(&world_of_job, call, from, to, reply, output);
        });
        let hang_up: Rc<dyn Fn()> = Rc::new(move || answer(&hang_up, Err(Broken)));
        world.network.open.borrow_mut().push(Open { call, server: to, from, polls, job, hang_up });
    }

    fn go_back(world: &Rc<World>, call: u64, from: Host, to: usize, reply: Reply<T>, output: T) {
        for open in world.take_open(|open| open.call == call) {
            if let (Host::Worker(worker), true) = (from, open.polls) {
                world.see(Seen::InTouch { worker, called: false });
            }
        }
        if world.network.is_cut(from, to) {
            world.network.lost.borrow_mut().push(reply);
            return;
        }
        if world.disturbs(world.config.faults.lost) {
            world.count("fault: answer lost");
            world
                .after_with(world.latency(), "connection breaks", call, move |_| answer(&reply, Err(Broken)));
            return;
        }
        world.after_with(world.latency(), "answer arrives", call, move |_| answer(&reply, Ok(output)));
    }
}

/// What operators ask for is audited.
fn by_operator(host: Host) -> AuditedOperation {
    let by = Some(Actor { name: format!("{host:?}").into(), claimed: true });
    AuditedOperation { operation: "simulated".into(), by, address: None }
}

fn answer<T>(reply: &Reply<T>, output: Result<T, Broken>) {
    if let Some(reply) = reply.borrow_mut().take() {
        let _ = reply.send(output);
    }
}

/// Closes the connection of a call that nobody awaits any more.
struct HangUp<'a> {
    world: &'a Rc<World>,
    call: u64,
}

impl Drop for HangUp<'_> {
    fn drop(&mut self) {
        self.world.hang_up(self.call);
    }
}
