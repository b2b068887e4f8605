//! A server without a socket, a clock to turn, and a worker to play.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{HeaderMap, Method, Request, StatusCode},
};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tower_service::Service as _;
use windlass::http::{App, ClientLimits, Jobs, router};
use windlass_core::{Millis, Name, Timestamp};
use windlass_engine::{
    Committer, Engine,
    services::{LeaseKeeper, Messenger, Reclaimer, Timekeeper},
};
use windlass_store::{Clock, Now, memory::MemorySink, resident::Resident};

/// 2030-03-17T17:46:40Z.
const START_MS: i64 = 1_900_000_000_000;

/// Far more than anything here takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// A clock that stands still until it is turned.
#[derive(Debug, Default)]
pub(super) struct TestClock(AtomicU64);

impl Clock for TestClock {
    fn now(&self) -> Now {
        let ms = self.0.load(Ordering::SeqCst);
        Now { wall: Timestamp(START_MS + i64::try_from(ms).unwrap()), mono: Millis(ms) }
    }
}

/// A server.
pub(super) struct Server {
    pub(super) app: Arc<App>,
    clock: Arc<TestClock>,
    router: Router,
    timekeeper: Timekeeper,
    lease_keeper: LeaseKeeper,
    reclaimer: Reclaimer,
    messenger: Messenger,
}

/// An answer.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) text: String,
}

impl Answer {
    #[track_caller]
    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error} in {:?}", self.text))
    }

    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

impl Server {
    /// A server with an empty store.
    pub(super) async fn start() -> Self {
        Self::with(ClientLimits::default()).await
    }

    /// The same, asking for access tokens.
    pub(super) async fn with_tokens() -> Self {
        let flow = |name: &str| Name::new(name).unwrap();
        let flows = [("mine".to_owned(), flow("mine")), ("theirs".to_owned(), flow("theirs"))];
        let jobs = Jobs::of_flows(flow("mine"), flows.into());
        let change = |app: App| app.requiring_tokens(None).with_jobs(Some(jobs));
        Self::open(ClientLimits::default(), change).await
    }

    /// The same with other limits of clients.
    pub(super) async fn with(clients: ClientLimits) -> Self {
        Self::open(clients, |app| app).await
    }

    async fn open(clients: ClientLimits, change: impl FnOnce(App) -> App) -> Self {
        let clock = Arc::new(TestClock::default());
        let store = Resident::open(Arc::new(MemorySink::new([7; 32])), clock.now()).await.unwrap();
        let engine = Arc::new(Engine::new(Arc::new(store), 7));
        let (committer, news, time) = (Committer::new(engine.clone()), engine.clone(), clock.clone());
        tokio::spawn(async move {
            loop {
                news.inbox().wait().await;
                while committer.run_once(|| time.now()).await > 0 {}
            }
        });
        let app = Arc::new(change(App::new(engine.clone(), clock.clone(), clients)));
        let server = Self {
            router: router(app.clone()),
            app,
            clock,
            timekeeper: Timekeeper::new(engine.clone()),
            lease_keeper: LeaseKeeper::new(engine.clone()),
            reclaimer: Reclaimer::new(engine.clone()),
            messenger: Messenger::new(engine),
        };
        // Past the grace after a start.
        server.pass(1000).await;
        server
    }

    pub(super) fn now(&self) -> Now {
        self.clock.now()
    }

    /// Lets time pass, in steps that no silence of the server itself is seen in, and does what is due.
    pub(super) async fn pass(&self, ms: u64) {
        const STEP_MS: u64 = 250;
        let mut left = ms;
        loop {
            let step = left.min(STEP_MS);
            self.clock.0.fetch_add(step, Ordering::SeqCst);
            left -= step;
            let now = self.clock.now();
            self.lease_keeper.run_once(now).await.unwrap();
            self.reclaimer.run_once(now).await.unwrap();
            self.timekeeper.run_once(now).await.unwrap();
            self.messenger.run_once(now).await.unwrap();
            if left == 0 {
                return;
            }
        }
    }

    /// Sends a request.
    pub(super) async fn send(&self, request: Request<Body>) -> Answer {
        let mut router = self.router.clone();
        let response =
            tokio::time::timeout(PATIENCE, router.call(request)).await.expect("an answer").unwrap();
        let (status, headers) = (response.status(), response.headers().clone());
        let body = tokio::time::timeout(PATIENCE, response.into_body().collect())
            .await
            .expect("a whole body")
            .unwrap();
        Answer { status, headers, text: String::from_utf8(body.to_bytes().to_vec()).unwrap() }
    }

    pub(super) async fn get(&self, path: &str) -> Answer {
        self.send(Request::get(path).body(Body::empty()).unwrap()).await
    }

    pub(super) async fn post(&self, path: &str, body: &Value) -> Answer {
        self.send(json_request(Method::POST, path, &body.to_string())).await
    }

    /// A POST without a body.
    pub(super) async fn verb(&self, path: &str) -> Answer {
        self.send(Request::post(path).header("windlass-actor", "ops").body(Body::empty()).unwrap()).await
    }

    /// Applies a flow written in YAML.
    pub(super) async fn apply(&self, name: &str, yaml: &str) -> Answer {
        let request = Request::put(format!("/v1/flows/{name}")).header("content-type", "application/yaml");
        let answer = self.send(request.body(Body::from(yaml.to_owned())).unwrap()).await;
        assert!(answer.status.is_success(), "{answer:?}");
        answer
    }

    /// Submits a task and returns its id.
    pub(super) async fn submit(&self, flow: &str, params: Value) -> String {
        let answer = self.post("/v1/tasks", &json!({ "flow": flow, "params": params })).await;
        assert_eq!(answer.status, StatusCode::ACCEPTED, "{answer:?}");
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    pub(super) async fn task(&self, id: &str) -> Value {
        self.get(&format!("/v1/tasks/{id}")).await.json()
    }
}

/// A request with a JSON body.
pub(super) fn json_request(method: Method, path: &str, body: &str) -> Request<Body> {
    let request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    request.body(Body::from(body.to_owned())).unwrap()
}

/// A worker that does what a test says.
pub(super) struct Worker<'a> {
    server: &'a Server,
    session: String,
    modules: Vec<String>,
    seq: u64,
}

impl<'a> Worker<'a> {
    /// A worker of these modules that has not called yet. `number` distinguishes workers.
    pub(super) fn new(server: &'a Server, number: u8, modules: &[&str]) -> Self {
        let modules = modules.iter().map(|module| (*module).to_owned()).collect();
        Self { server, session: format!("00000000-0000-4000-8000-0000000000{number:02x}"), modules, seq: 0 }
    }

    /// One call.
    pub(super) async fn call(&mut self, more: Value) -> Answer {
        self.seq += 1;
        let mut body = json!({ "protocol": 1, "session": self.session, "seq": self.seq, "worker": { "name": "worker-1" } });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.server.post("/v1/worker/exchange", &body).await
    }

    /// Polls once, without waiting, having nothing.
    pub(super) async fn poll(&mut self) -> Value {
        let modules: Vec<Value> =
            self.modules.iter().map(|name| json!({ "name": name, "free": 1 })).collect();
        let answer = self.call(json!({ "modules": modules, "holding": [] })).await;
        assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
        answer.json()
    }

    /// Takes the one attempt there is.
    pub(super) async fn take(&mut self) -> Value {
        let answer = self.poll().await;
        assert_eq!(answer["attempts"].as_array().unwrap().len(), 1, "{answer}");
        answer["attempts"][0].clone()
    }

    /// Reports one attempt and returns its status.
    pub(super) async fn report(&mut self, attempt: &Value, outcome: &str, more: Value) -> String {
        let mut report = json!({ "token": attempt["token"], "outcome": outcome });
        report.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let answer = self.call(json!({ "reports": [report] })).await.json();
        answer["reports"][0]["status"].as_str().unwrap().to_owned()
    }

    /// Takes an attempt and reports it.
    pub(super) async fn run(&mut self, outcome: &str, more: Value) -> Value {
        let attempt = self.take().await;
        assert_eq!(self.report(&attempt, outcome, more).await, "accepted");
        attempt
    }
}
