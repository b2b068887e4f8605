//! Bugs that can be planted, so that the simulator can show that it would find them.
//!
//! Each is one condition at the place where the guard stands that it takes away. Without the feature `planted`
//! [`is_planted`] is always false, and nothing of this is left in the program.

/// A bug that can be planted: the guard it takes away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A report counts whatever claim it comes under.
    NoFence,
    /// A session may adopt what another one has.
    StolenAttempts,
    /// Idempotency keys of submits are not kept.
    NoSubmitKey,
    /// Idempotency keys are not looked for on disk.
    SubmitKeyForgotten,
    /// Attempts of silent workers are never given up.
    NoLeaseExpiry,
    /// The lease of a worker is short although its poll is open.
    LeaseCutShort,
    /// What is committed is answered before it is on disk.
    AcknowledgedEarly,
    /// What is staged is handed out before it is on disk.
    HandedOutEarly,
    /// People are shown what is not on disk yet.
    ShownEarly,
    /// Lost attempts are made again without end.
    NoDeathLimit,
    /// Failed attempts are made again without end.
    NoRetryLimit,
    /// A retry is made when anything else is due.
    RetriedEarly,
    /// A retry's time is not kept.
    RetryTimerLost,
    /// Steps are undone first ones first.
    RollbackForward,
    /// A step that failed is not undone.
    FailedStepNotUndone,
    /// A step that was withdrawn from a worker is not undone.
    WithdrawnStepNotUndone,
    /// Undoing begins while steps are in flight.
    UndoneInFlight,
    /// After a start nothing waits for workers to name what they hold.
    NoAdoptionGrace,
    /// A report that was accepted is accepted again.
    ResultTwice,
    /// A message between aggregates is forgotten.
    MessageLost,
    /// A message between aggregates is consumed more than once.
    MessageTwice,
    /// A start forgets attempts that are ready.
    ReadyForgotten,
    /// A change is taken whatever the task has become meanwhile.
    LostUpdate,
    /// What is free of a paused task is handed out.
    PauseIgnored,
    /// In a paused task the next attempts become ready.
    BegunInPause,
    /// A step begins when one of those before it is done.
    JoinEarly,
    /// The end of a member does not let the next one begin.
    MemberForgotten,
    /// However many members begin at once.
    WindowIgnored,
    /// A step is done although members of it failed.
    PartialIgnored,
    /// Members that change are counted twice.
    MembersMiscounted,
    /// A signal that came early is not given to its step.
    KeptSignalForgotten,
    /// A lock is given to those who ask, whoever has it.
    LockHeldTwice,
    /// Locks of steps that are settled are not given back.
    LockNotReleased,
    /// A lock that is given back is not given to the next.
    LockNotPassedOn,
    /// A lock changes hands under the same fence.
    FenceReused,
    /// No limit keeps anything back.
    LimitIgnored,
    /// What has ended counts under limits still.
    LimitLeak,
    /// Starts are not counted.
    StartsForgotten,
    /// Tasks that are the same are all taken in.
    UniqueIgnored,
    /// A unique task that is on its way to the disk is overlooked.
    UniqueOverlooked,
    /// What stands in a paused queue is handed out.
    QueuePauseIgnored,
    /// A key that has had its turn may have the next one as well.
    TurnsIgnored,
    /// Of those who wait for a lock the first is said to have it.
    WrongHolderNamed,
    /// Where a limit keeps an attempt back, no worker is said to serve it.
    WorkersSaidMissing,
    /// What stands in a paused queue is said to be on its way.
    QueuePauseNotTold,
    /// The child of a retry is the one that failed.
    ChildOfBefore,
    /// A child that was cancelled does not tell its parent that it has ended.
    ChildEndLost,
    /// A child that succeeded is not undone with its parent.
    ChildNotUndone,
    /// An event whose announcement was not confirmed leaves the outbox all the same.
    AnnouncementLost,
    /// An event is announced though the one before it was not confirmed.
    AnnouncementOvertaken,
    /// What happens to a task by a message is not in the outbox.
    OutboxForgotten,
    /// The deadline of a step runs while its first attempt waits in a queue.
    DeadlineInQueue,
    /// When the first attempt of a step was taken is not kept: a restart begins its deadline anew.
    DeadlineNotKept,
    /// A step gets the results of steps that are not before it.
    LaterResultsSeen,
    /// A rollback gets the results of later steps among its parameters.
    RollbackSeesLaterResults,
    /// A rollback does not get the result of its step.
    RollbackWithoutResult,
    /// A step gets the named results of steps that are not before it.
    ResultsOfAllSteps,
    /// The results of items are not in the order of the list.
    MembersOutOfOrder,
    /// The wait before a retry does not grow with the failures.
    BackoffNotDoubled,
    /// The last retry is not made.
    RetryCutShort,
    /// A lost worker counts twice.
    DeathCountedTwice,
    /// An attempt waits for a worker for longer than `start_within`.
    StartWithinForgotten,
    /// A step with `at_least` begins after fewer steps.
    LeastIgnored,
    /// A lock that was deleted begins again with its first fence.
    LockFloorForgotten,
    /// An ended task prevents others with its unique key for ever.
    UniqueForever,
    /// The free slots that come with a report are not noted.
    FreeSlotsUnheard,
    /// What a broker has lost is sent again under another token.
    SentAgainUnderAnotherToken,
    /// An answer that is lost on a broker ends its step for good.
    LostAnswerIsFinal,
    /// A restart forgets the deadlines of tasks.
    TaskDeadlineForgotten,
    /// The parameters and results of a task leave memory before the change that has them is on disk.
    BodyDroppedEarly,
    /// A task is taken for whole whose parameters and results are not in memory.
    BodyNotRead,
}

impl Bug {
    /// All that the simulator must find.
    pub const ALL: &[Self] = &[
        Self::NoFence,
        Self::StolenAttempts,
        Self::NoSubmitKey,
        Self::SubmitKeyForgotten,
        Self::NoLeaseExpiry,
        Self::LeaseCutShort,
        Self::AcknowledgedEarly,
        Self::HandedOutEarly,
        Self::ShownEarly,
        Self::NoDeathLimit,
        Self::NoRetryLimit,
        Self::RetriedEarly,
        Self::RetryTimerLost,
        Self::RollbackForward,
        Self::FailedStepNotUndone,
        Self::WithdrawnStepNotUndone,
        Self::UndoneInFlight,
        Self::NoAdoptionGrace,
        Self::ResultTwice,
        Self::MessageLost,
        Self::MessageTwice,
        Self::ReadyForgotten,
        Self::LostUpdate,
        Self::PauseIgnored,
        Self::BegunInPause,
        Self::JoinEarly,
        Self::MemberForgotten,
        Self::WindowIgnored,
        Self::PartialIgnored,
        Self::MembersMiscounted,
        Self::KeptSignalForgotten,
        Self::LockHeldTwice,
        Self::LockNotReleased,
        Self::LockNotPassedOn,
        Self::FenceReused,
        Self::LimitIgnored,
        Self::LimitLeak,
        Self::StartsForgotten,
        Self::UniqueIgnored,
        Self::UniqueOverlooked,
        Self::QueuePauseIgnored,
        Self::TurnsIgnored,
        Self::WrongHolderNamed,
        Self::WorkersSaidMissing,
        Self::QueuePauseNotTold,
        Self::ChildOfBefore,
        Self::ChildEndLost,
        Self::ChildNotUndone,
        Self::AnnouncementLost,
        Self::AnnouncementOvertaken,
        Self::OutboxForgotten,
        Self::DeadlineInQueue,
        Self::DeadlineNotKept,
        Self::TaskDeadlineForgotten,
        Self::LaterResultsSeen,
        Self::RollbackSeesLaterResults,
        Self::RollbackWithoutResult,
        Self::ResultsOfAllSteps,
        Self::MembersOutOfOrder,
        Self::BackoffNotDoubled,
        Self::RetryCutShort,
        Self::DeathCountedTwice,
        Self::StartWithinForgotten,
        Self::LeastIgnored,
        Self::UniqueForever,
        Self::FreeSlotsUnheard,
        Self::BodyDroppedEarly,
        Self::BodyNotRead,
    ];

    /// Those that no world of the simulator shows, each with the test that finds it. Each test was seen to fail with the bug
    /// planted and to pass without it.
    pub const BY_TESTS: &[(Self, &str)] = &[
        (Self::LockFloorForgotten, "engine: conformance::locks::the_floor_of_locks_stays_over_a_restart"),
        (
            Self::LostAnswerIsFinal,
            "core: stories::deadline::an_answer_lost_on_the_way_back_is_waited_for_once_more",
        ),
        (
            Self::SentAgainUnderAnotherToken,
            "engine: offering::what_the_broker_lost_is_sent_again_under_the_same_token_once_the_answers_are_read",
        ),
    ];
}

/// Whether this build has planted bugs in it; it must not serve anybody then.
pub const CAN_PLANT: bool = cfg!(feature = "planted");

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants one bug on this thread, or takes it out.
#[cfg(feature = "planted")]
pub fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}

/// Whether a bug is planted on this thread.
#[cfg(feature = "planted")]
#[must_use]
pub fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether a bug is planted: never, in a build without them.
#[cfg(not(feature = "planted"))]
#[must_use]
pub const fn is_planted(_bug: Bug) -> bool {
    false
}
