//! Starts child processes from a thread that lives as long as the program.
//!
//! Linux signals a child that its parent died when the *thread* that started it ends, and the thread of a test ends with
//! the test. But a server that several tests share must outlive the test that started it.

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
            // The caller may have ended. The child is then not used, and it is killed with the program.
            let _ = answer.send(command.spawn());
        }
    });
    sender
});

/// Starts `command` so that it gets its signal when this program ends, not when the calling thread ends.
pub(crate) fn spawn(command: Command) -> io::Result<Child> {
    let gone = || io::Error::other("the thread that starts children has ended");
    let (answer, answered) = mpsc::channel();
    KEEPER.send((command, answer)).map_err(|_| gone())?;
    answered.recv().map_err(|_| gone())?
}
