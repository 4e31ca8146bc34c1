//! How a process reaches a scheduler: opens every connection to one, and proves on it that the
//! process belongs to the cluster.

use std::fmt;
use std::time::Duration;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderValue, Uri};
use ballista_core::serde::protobuf::scheduler_grpc_client::SchedulerGrpcClient;
use ballista_core::utils::{GrpcClientConfig, create_grpc_client_endpoint};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Request, Status};
use tower::service_fn;

use crate::MESSAGE_LIMIT;
use crate::address::Address;
use crate::credentials::{ADVICE, BoxedStream, Credentials};
use crate::request_error::RequestError;

/// A client of a scheduler's gRPC service.
pub(crate) type SchedulerClient = SchedulerGrpcClient<SchedulerChannel>;

/// The connection of such a client.
pub(crate) type SchedulerChannel = InterceptedService<Channel, SecretInterceptor>;

/// A scheduler and what proves to it that this process belongs to its cluster.
#[derive(Clone, Debug)]
pub struct SchedulerEndpoint {
    /// Its address.
    pub address: Address,
    /// The credentials of this process.
    pub credentials: Credentials,
}

impl SchedulerEndpoint {
    /// Connects, encrypted if there are certificates.
    ///
    /// `Err` before anything is sent if the scheduler is on another machine and there are no
    /// credentials.
    pub(crate) async fn connect(&self) -> Result<BoxedStream, RequestError> {
        let unreachable = |e: std::io::Error| RequestError::Unreachable(e.to_string());
        let Address { host, port } = &self.address;
        let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(unreachable)?;
        stream.set_nodelay(true).map_err(unreachable)?;
        let peer = stream.peer_addr().map_err(unreachable)?;
        if !self.credentials.suffice_for(peer.ip()) {
            return Err(RequestError::Refused(format!(
                "the scheduler at {self} is not on loopback, and there are no credentials: {ADVICE}"
            )));
        }
        match self.credentials.tls() {
            Some(tls) => tls.connect(stream, &self.address).await,
            None => Ok(Box::new(stream)),
        }
    }

    /// A gRPC client whose requests may take this long.
    pub(crate) async fn grpc_client(
        &self,
        timeout: Duration,
    ) -> Result<SchedulerClient, tonic::transport::Error> {
        let config =
            GrpcClientConfig { timeout_seconds: timeout.as_secs(), ..GrpcClientConfig::default() };
        let endpoint = create_grpc_client_endpoint(format!("http://{self}"), Some(&config))?;
        let reached = self.clone();
        let connector = service_fn(move |_: Uri| {
            let reached = reached.clone();
            async move { reached.connect().await.map(TokioIo::new) }
        });
        let channel = endpoint.connect_with_connector(connector).await?;
        let token = self.credentials.secret().map(|secret| secret.to_header());
        let client = SchedulerGrpcClient::with_interceptor(channel, SecretInterceptor { token });
        Ok(client.max_decoding_message_size(MESSAGE_LIMIT).max_encoding_message_size(MESSAGE_LIMIT))
    }
}

impl fmt::Display for SchedulerEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.address.fmt(f)
    }
}

/// Adds the secret to requests.
#[derive(Clone, Debug)]
pub(crate) struct SecretInterceptor {
    token: Option<HeaderValue>,
}

impl Interceptor for SecretInterceptor {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(token) = &self.token {
            request.metadata_mut().as_mut().insert(AUTHORIZATION, token.clone());
        }
        Ok(request)
    }
}
