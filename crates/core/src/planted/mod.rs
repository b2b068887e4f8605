//! Bugs that can be planted, so that the simulator can show that it finds them.
//!
//! Each is one condition at the guard that it disables. Without the feature `planted`, [`is_planted`] is always false,
//! and the compiler removes all of this.

mod found;

/// A bug that can be planted: the guard it disables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A report is accepted under any claim.
    NoFence,
    /// A session may adopt attempts that another one has claimed.
    StolenAttempts,
    /// A session adopts attempts that its worker is returning.
    DeclinedAdopted,
    /// Idempotency keys of submits are not kept.
    NoSubmitKey,
    /// Idempotency keys are not looked for on disk.
    SubmitKeyForgotten,
    /// Attempts of silent workers are never reclaimed.
    NoLeaseExpiry,
    /// The lease of a worker is short even though its poll is open.
    LeaseCutShort,
    /// Leases of workers are compared by the wall clock.
    LeaseByWallClock,
    /// Changes are acknowledged before they are on disk.
    AcknowledgedEarly,
    /// Staged attempts are handed out before they are on disk.
    HandedOutEarly,
    /// State is shown before it is on disk.
    ShownEarly,
    /// Lost attempts are made again without end.
    NoDeathLimit,
    /// Failed attempts are made again without end.
    NoRetryLimit,
    /// A retry is made when anything else is due.
    RetriedEarly,
    /// The time of a retry is not stored.
    RetryTimerLost,
    /// Steps are rolled back in forward order.
    RollbackForward,
    /// A failed step is not rolled back.
    FailedStepNotUndone,
    /// A step that was withdrawn from a worker is not rolled back.
    WithdrawnStepNotUndone,
    /// The rollback starts while steps are in flight.
    UndoneInFlight,
    /// After a start no attempt waits for workers to name theirs.
    NoAdoptionGrace,
    /// A report that was accepted is accepted again.
    ResultTwice,
    /// A message between aggregates is forgotten.
    MessageLost,
    /// A message between aggregates is consumed more than once.
    MessageTwice,
    /// A message is delivered before the change that sends it is on disk.
    MessageShownEarly,
    /// A change consumes a message although the change that was to send it failed.
    SenderForgotten,
    /// A change of a lock is accepted although it was decided on a state that was lost.
    LostLockState,
    /// The lease of a leader is over although the leader has renewed it.
    RenewalNotSeen,
    /// A leader is replaced although it has renewed since its lease was found over.
    RenewalOvertaken,
    /// A leader that was deposed leads again by a renewal.
    ElectedByRenewal,
    /// A start forgets attempts that are ready.
    ReadyForgotten,
    /// A change is accepted whatever has happened to the task meanwhile.
    LostUpdate,
    /// Unclaimed attempts of a paused task are handed out.
    PauseIgnored,
    /// The next attempts of a paused task become ready.
    BegunInPause,
    /// The next attempt follows a stopped one before that has ended.
    StoppedNotAwaited,
    /// The server ends the pause of an operator.
    PauseOfOthersEnded,
    /// A step starts when one of its predecessors is completed.
    JoinEarly,
    /// The end of an item does not let the next one start.
    MemberForgotten,
    /// Any number of items starts at once.
    WindowIgnored,
    /// A step succeeds although items of it failed.
    PartialIgnored,
    /// Changed items are counted twice.
    MembersMiscounted,
    /// A signal that arrived early is not delivered to its step.
    KeptSignalForgotten,
    /// A lock is granted to every requester, even if it is held.
    LockHeldTwice,
    /// Locks of settled steps are not released.
    LockNotReleased,
    /// A released lock is not granted to the next waiter.
    LockNotPassedOn,
    /// A lock gets a new holder under the same fence.
    FenceReused,
    /// No limit blocks any attempt.
    LimitIgnored,
    /// Ended attempts still count under limits.
    LimitLeak,
    /// Starts are not counted.
    StartsForgotten,
    /// All duplicates of a unique task are accepted.
    UniqueIgnored,
    /// A unique task that is being written is overlooked.
    UniqueOverlooked,
    /// Attempts in a paused queue are handed out.
    QueuePauseIgnored,
    /// A concurrency key that has had its turn may have the next one as well.
    TurnsIgnored,
    /// The first waiter for a lock is reported as its holder.
    WrongHolderNamed,
    /// If a limit blocks an attempt, the server reports that no worker serves it.
    WorkersSaidMissing,
    /// Attempts in a paused queue are reported as in transit.
    QueuePauseNotTold,
    /// A task starts without its exclusive queue.
    QueueIgnored,
    /// An operator moves an exclusive queue past a task that runs.
    RunningHeadSkipped,
    /// Changes of a task are committed although an operator took its exclusive queue away.
    QueueFenceUnchecked,
    /// A server writes as the leader of a service although another one has taken the lease.
    ServiceFenceUnchecked,
    /// A server takes the lease of a service before it has ended.
    LeaseTakenEarly,
    /// A server takes the lease of a service over under the same fence.
    ServiceFenceReused,
    /// The tasks of an exclusive queue are served in the order in which their requests arrive.
    QueueOrderIgnored,
    /// A repeated submit is answered although its task has not joined its exclusive queue.
    JoinNotAwaited,
    /// The child task of a retry is the one that failed.
    ChildOfBefore,
    /// A cancelled child task does not report its end to its parent.
    ChildEndLost,
    /// A completed child task is not rolled back with its parent.
    ChildNotUndone,
    /// A secret that is not a reference is recorded.
    PlainSecretKept,
    /// An event whose announcement was not confirmed leaves the outbox.
    AnnouncementLost,
    /// An event is announced although the previous one was not confirmed.
    AnnouncementOvertaken,
    /// An event that a subscriber refused is not announced again.
    RefusedNotRepeated,
    /// Events of a task that are caused by a message are not in the outbox.
    OutboxForgotten,
    /// The deadline of a step runs while its first attempt waits in a queue.
    DeadlineInQueue,
    /// The time when the first attempt of a step was claimed is not stored: a restart begins its deadline again.
    DeadlineNotKept,
    /// A step gets the results of steps that are not its ancestors.
    LaterResultsSeen,
    /// A rollback gets the results of later steps among its parameters.
    RollbackSeesLaterResults,
    /// A rollback does not get the result of its step.
    RollbackWithoutResult,
    /// A step gets the named results of steps that are not its ancestors.
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
    /// A deleted lock begins again with its first fence.
    LockFloorForgotten,
    /// An ended task prevents others with its unique key forever.
    UniqueForever,
    /// The free slots in a call with reports are ignored.
    FreeSlotsUnheard,
    /// A message that a broker has lost is sent again under another token.
    SentAgainUnderAnotherToken,
    /// An answer that a broker lost fails its step without a retry.
    LostAnswerIsFinal,
    /// A restart forgets the deadlines of tasks.
    TaskDeadlineForgotten,
    /// The parameters and results of a task leave memory before the change that has them is on disk.
    BodyDroppedEarly,
    /// A task is taken for whole whose parameters and results are not in memory.
    BodyNotRead,
    /// A lock whose row is damaged is taken for a free one.
    DamagedLockOpened,
    /// A limit whose row is damaged allows everything.
    DamagedLimitIgnored,
    /// An import leaves out the locks.
    LocksNotImported,
    /// An instant of a trigger that was fired without a record of it is fired again as another one.
    InstantFiredTwice,
    /// An answer in the name of another device than the one that has the job counts.
    ForeignAnswerCounts,
    /// An answer counts for another attempt than the one that it names.
    AnswerOfAnotherAttempt,
    /// Jobs of different steps of a task have the same numbers.
    JobsAlike,
    /// A job that failed counts as done.
    FailedJobMovesOn,
    /// A server that takes over does not go on with the jobs that were claimed and not published.
    JobsStranded,
    /// Messages of devices are acknowledged before what comes of them is on disk.
    AnswersAcknowledgedEarly,
    /// Messages of devices that could not be settled do not come again.
    AnswersNotHeardAgain,
    /// Jobs are published before what waited at the network was heard.
    PublishedUnheard,
    /// Jobs are published to devices that are offline.
    PresenceIgnored,
    /// A record is changed although it has changed since it was read.
    RecordChangeLost,
    /// A rollout that is resumed begins again with the first device.
    DeviceVisitedAgain,
    /// A rollout that is resumed starts its next devices at once.
    RolloutRateForgotten,
    /// A rollout starts devices whatever runs.
    RolloutWindowIgnored,
    /// No threshold aborts a rollout.
    ThresholdIgnored,
    /// Devices that end while their rollout is paused are counted twice.
    ProgressCountedTwice,
    /// A device whose task was not started at once, because the server ended, is waited for in vain.
    RecordedNotStarted,
    /// A paused rollout starts devices.
    RolloutPauseIgnored,
    /// A paused rollout starts the devices that it has recorded before.
    PausedRolloutStarts,
    /// A rollout rolls back only the newest tasks that succeeded.
    RollbackListCut,
    /// The tasks of a rollout have no idempotency keys.
    RolloutKeyForgotten,
    /// The audit log has entries about changes that failed.
    AuditedAnyway,
    /// The audit log has no entries.
    AuditForgotten,
}

/// Whether bugs can be planted in this build; it must not be used in production then.
pub const CAN_PLANT: bool = cfg!(feature = "planted");

#[cfg(feature = "planted")]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Plants one bug on this thread, or removes it.
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
