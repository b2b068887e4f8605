//! Starts children from a thread that lives as long as the program.
//!
//! Linux tells a child that its parent died when the *thread* that started it ends, and the thread of a test ends with
//! the test. A server that several tests share must outlive the one that came first.

use std::{
    io,
    process::{Child, Command},
    sync::{LazyLock, mpsc},
    thread,
};

type Job = (Command, mpsc::Sender<io::Result<Child>>);

static KEEPER: LazyLock<mpsc::Sender<Job>> = LazyLock::new(|| {
    let (sender, jobs) = mpsc::channel::<Job>();
    thread::spawn(move || {
        for (mut command, answer) in jobs {
            // Whoever asked may have gone; a child nobody waits for is killed with the program.
            let _ = answer.send(command.spawn());
        }
    });
    sender
});

/// Starts `command` so that it is told of the end of this program, not of the end of the calling thread.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    let gone = || io::Error::other("the thread that starts children has ended");
    let (answer, answered) = mpsc::channel();
    KEEPER.send((command, answer)).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())?
}
