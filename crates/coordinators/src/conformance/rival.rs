//! A candidate that is a process of its own, to be killed and paused.

use std::{
    env,
    io::{self, BufRead as _, BufReader, Lines, Write as _},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use tokio::{sync::mpsc, time::interval};

use crate::{Campaign, Leadership, connect};

/// The variable that makes a test program a rival: URL, name, id and lease in milliseconds, a line each.
const VARIABLE: &str = "WINDLASS_RIVAL";

/// A candidate in a process of its own. It is killed when this is dropped.
pub struct Rival {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

impl Rival {
    /// Starts this test program again as a candidate. Its test `rival` must call [`run_rival`].
    ///
    /// # Panics
    /// When it cannot be started.
    #[must_use]
    pub fn start(url: &str, campaign: &Campaign) -> Self {
        let lease = campaign.lease.as_millis();
        let mut child = Command::new(env::current_exe().expect("this program has a file"))
            .args(["--exact", "rival", "--nocapture", "--test-threads=1"])
            .env(VARIABLE, format!("{url}\n{}\n{}\n{lease}", campaign.name, campaign.id))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program starts again");
        let input = child.stdin.take().expect("it has an input");
        let output = BufReader::new(child.stdout.take().expect("it has an output")).lines();
        Self { child, input, output }
    }

    /// Waits until it leads, and returns its fence.
    pub fn leads(&mut self) -> u64 {
        self.next_word("leads").parse().expect("a fence")
    }

    /// Lets it begin an effect. Returns the fence of the effect; none when its time is over.
    pub fn acts(&mut self) -> Option<u64> {
        self.say("act");
        self.next_word("acts").parse().ok()
    }

    /// Asks for an effect that it has decided on before: it does not look at its clock again. The answer waits
    /// until [`late_effect`](Self::late_effect) reads it.
    pub fn begin_late_effect(&mut self) {
        self.say("late");
    }

    /// The fence of that effect.
    pub fn late_effect(&mut self) -> u64 {
        self.next_word("late").parse().expect("a fence")
    }

    /// Kills it as SIGKILL does.
    pub fn kill(&mut self) {
        self.child.kill().expect("it is killed");
        self.child.wait().expect("it ends");
    }

    /// Stops it where it is.
    pub fn pause(&self) {
        self.signal("STOP");
    }

    /// Lets it go on.
    pub fn resume(&self) {
        self.signal("CONT");
    }

    fn signal(&self, signal: &str) {
        let status = Command::new("kill").args(["-s", signal, &self.child.id().to_string()]).status();
        assert!(status.expect("there is a program kill").success());
    }

    fn say(&mut self, word: &str) {
        writeln!(self.input, "{word}").expect("it listens");
    }

    /// The rest of the next line that begins with this word. Other output is that of the test harness.
    fn next_word(&mut self, word: &str) -> String {
        let prefix = format!("rival {word} ");
        loop {
            let line = self.output.next().expect("it still runs").expect("its output is text");
            if let Some((_, rest)) = line.split_once(&prefix) {
                return rest.to_owned();
            }
        }
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        // It may have been killed already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Is a rival, if this process was started as one, until its input ends.
///
/// # Panics
/// When it cannot campaign.
pub fn run_rival() {
    let Ok(variable) = env::var(VARIABLE) else { return };
    let [url, name, id, lease] = variable.lines().collect::<Vec<_>>()[..] else { panic!("{variable}") };
    let lease = Duration::from_millis(lease.parse().expect("milliseconds"));
    let campaign = Campaign::new(name, id, lease);
    let (sender, mut words) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        io::stdin().lines().map_while(Result::ok).try_for_each(|word| sender.send(word))
    });
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build().expect("the machine has resources for a runtime");
    runtime.block_on(async {
        let coordinator = connect(url).expect("the URL is valid");
        let leadership = coordinator.campaign(&campaign).await.expect("it is elected");
        answer("leads", leadership.fence());
        let mut renewals = interval(campaign.renew_every());
        loop {
            tokio::select! {
                word = words.recv() => match word {
                    Some(word) => obey(&word, &*leadership),
                    None => return,
                },
                // What comes of it is seen by the clock alone: that is what is looked at here.
                _ = renewals.tick() => drop(leadership.renew().await),
            }
        }
    });
}

fn obey(word: &str, leadership: &dyn Leadership) {
    match word {
        "act" if Instant::now() < leadership.acts_until() => answer("acts", leadership.fence()),
        "act" => answer("acts", "not"),
        "late" => answer("late", leadership.fence()),
        _ => {}
    }
}

fn answer(word: &str, rest: impl std::fmt::Display) {
    println!("rival {word} {rest}");
}
