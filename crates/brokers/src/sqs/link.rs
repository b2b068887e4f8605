//! The client, and the URLs of queues.

use std::{
    collections::HashMap,
    fs,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use aws_sdk_sqs::{
    Client, Config,
    config::{Credentials, Region, SharedCredentialsProvider, retry::RetryConfig, timeout::TimeoutConfig},
    error::{ProvideErrorMetadata, SdkError},
    types::QueueAttributeName,
};
use aws_smithy_http_client::tls::{Provider, TlsContext, TrustStore, rustls_provider::CryptoMode};
use tokio::sync::OnceCell;
use windlass_tls::ClientFiles;

use crate::{
    BrokerError, Queue,
    sqs::{address::Address, failure},
    tls,
};

/// The time limit for connecting.
const CONNECT_MAX: Duration = Duration::from_secs(5);

/// The time limit for one request: longer than the longest wait for messages, which is 20 s.
const REQUEST_MAX: Duration = Duration::from_secs(25);

/// The most requests for one call: callers retry by themselves.
const TRIES_MAX: u32 = 2;

/// How long a queue keeps messages, in seconds: the maximum, 14 days.
const KEEP_SECONDS: &str = "1209600";

/// The suffix of the names of FIFO queues.
const FIFO: &str = ".fifo";

/// The longest name of a queue, with that suffix.
const NAME_BYTES_MAX: usize = 80;

/// The client, and the URLs of queues. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Link {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    address: Address,
    /// The CA certificates to trust in place of the system's.
    trusted: Option<TlsContext>,
    client: OnceCell<Client>,
    /// The URLs of queues, by name. SQS requires them in every request.
    urls: Mutex<HashMap<String, String>>,
}

impl Link {
    /// Reads the file with the CA certificates to trust, if the URL names one.
    ///
    /// # Errors
    /// When it cannot be read or contains something else.
    pub(super) fn new(address: Address) -> Result<Self, BrokerError> {
        let trusted = if address.files.is_empty() { None } else { Some(trusted(&address.files)?) };
        let client = OnceCell::new();
        Ok(Self { shared: Arc::new(Shared { address, trusted, client, urls: Mutex::default() }) })
    }

    /// The name of the broker.
    pub(super) fn name(&self) -> &str {
        &self.shared.address.name
    }

    /// The client. It is made when it is first needed, because only then are credentials looked up.
    pub(super) async fn client(&self) -> &Client {
        self.shared.client.get_or_init(|| connect(&self.shared)).await
    }

    /// The URL of a queue. Creates the queue unless it exists.
    pub(super) async fn declare(&self, queue: &Queue) -> Result<String, BrokerError> {
        match self.find(queue).await {
            Err(BrokerError::NoQueue(_)) => {}
            found => return found,
        }
        let client = self.client().await;
        let mut request = client.create_queue().queue_name(&queue.name);
        request = request.attributes(QueueAttributeName::MessageRetentionPeriod, KEEP_SECONDS);
        if is_fifo(queue)? {
            request = request.attributes(QueueAttributeName::FifoQueue, "true");
        }
        let answer = request.send().await.map_err(|error| failure::of_call(&queue.name, error))?;
        self.remember(queue, answer.queue_url)
    }

    /// The URL of an existing queue.
    pub(super) async fn find(&self, queue: &Queue) -> Result<String, BrokerError> {
        is_fifo(queue)?;
        if let Some(url) = self.urls().get(&queue.name) {
            return Ok(url.clone());
        }
        let request = self.client().await.get_queue_url().queue_name(&queue.name);
        let answer = request.send().await.map_err(|error| failure::of_call(&queue.name, error))?;
        self.remember(queue, answer.queue_url)
    }

    /// The error of a failed call about a queue. Forgets the URL of a missing queue.
    pub(super) fn failed<E, R>(&self, queue: &Queue, error: SdkError<E, R>) -> BrokerError
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
        R: std::fmt::Debug + Send + Sync + 'static,
    {
        let failure = failure::of_call(&queue.name, error);
        if matches!(failure, BrokerError::NoQueue(_)) {
            self.urls().remove(&queue.name);
        }
        failure
    }

    fn remember(&self, queue: &Queue, url: Option<String>) -> Result<String, BrokerError> {
        let url =
            url.ok_or_else(|| BrokerError::Failed("an answer without the queue's address".to_owned()))?;
        self.urls().insert(queue.name.clone(), url.clone());
        Ok(url)
    }

    fn urls(&self) -> MutexGuard<'_, HashMap<String, String>> {
        self.shared.urls.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// Whether a queue is a FIFO queue; an error if SQS does not support it.
pub(super) fn is_fifo(queue: &Queue) -> Result<bool, BrokerError> {
    let (name, is_fifo) = match queue.name.strip_suffix(FIFO) {
        Some(name) => (name, true),
        None => (queue.name.as_str(), false),
    };
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_".contains(c);
    if name.is_empty() || queue.name.len() > NAME_BYTES_MAX || !name.chars().all(allowed) {
        return Err(BrokerError::Invalid(format!(
            "{:?} cannot be a queue of SQS: 1 to {NAME_BYTES_MAX} letters, digits, hyphens and underscores, of a FIFO queue \
             with {FIFO} at the end",
            queue.name
        )));
    }
    match queue.kind.as_deref() {
        None => Ok(is_fifo),
        Some("fifo") if is_fifo => Ok(true),
        Some("standard") if !is_fifo => Ok(false),
        Some(kind @ ("fifo" | "standard")) => Err(BrokerError::Invalid(format!(
            "the queue {queue} cannot be of the kind {kind}: in SQS the names of FIFO queues, and no others, end in {FIFO}"
        ))),
        Some(kind) => {
            Err(BrokerError::Invalid(format!("SQS has queues of the kinds standard and fifo, not {kind}")))
        }
    }
}

/// The CA certificates in the file, after a check: the library panics if it contains anything else.
fn trusted(files: &ClientFiles) -> Result<TlsContext, BrokerError> {
    tls::configuration(files)?;
    let mut trusted = TrustStore::empty();
    if let Some(path) = &files.authorities {
        let pem = fs::read(path)
            .map_err(|error| BrokerError::Invalid(format!("cannot read {}: {error}", path.display())))?;
        trusted.add_pem_certificate(pem);
    }
    let context = TlsContext::builder().with_trust_store(trusted).build();
    context.map_err(|error| BrokerError::Invalid(format!("cannot set up TLS: {error}")))
}

async fn connect(Shared { address, trusted, .. }: &Shared) -> Client {
    let mut http = aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring));
    if let Some(trusted) = trusted {
        http = http.tls_context(trusted.clone());
    }
    let http = http.build_https();
    let region = Region::new(address.region.clone());
    let credentials = match &address.credentials {
        Some((key, secret)) => {
            Some(SharedCredentialsProvider::new(Credentials::new(key, secret, None, None, "the URL")))
        }
        None => {
            let loader = aws_config::defaults(aws_config::BehaviorVersion::latest());
            let found = loader.http_client(http.clone()).region(region.clone()).load().await;
            found.credentials_provider()
        }
    };
    let timeouts =
        TimeoutConfig::builder().connect_timeout(CONNECT_MAX).operation_attempt_timeout(REQUEST_MAX);
    let mut config = Config::builder()
        .behavior_version_latest()
        .http_client(http)
        .region(region)
        .retry_config(RetryConfig::standard().with_max_attempts(TRIES_MAX))
        .timeout_config(timeouts.build());
    config.set_credentials_provider(credentials);
    if let Some(endpoint) = &address.endpoint {
        config = config.endpoint_url(endpoint);
    }
    Client::from_conf(config.build())
}
