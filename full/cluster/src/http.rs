//! Requests to the scheduler's admin API: one small JSON request per connection.

use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::header::{CONNECTION, CONTENT_TYPE, HOST};
use axum::http::{Method, Request, StatusCode};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::address::Address;

/// The timeout of a request.
const TIMEOUT: Duration = Duration::from_secs(8);

/// The longest response that is read: those of large clusters take some hundred kilobytes.
const MAX_RESPONSE: usize = 16 << 20;

/// Why a request has no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum RequestError {
    /// Nothing is listening, or it does not respond.
    Unreachable(String),
    /// Something other than a Sluice scheduler is listening.
    NotSluice,
}

/// The JSON response to `GET path`.
pub(crate) async fn get_json<T: DeserializeOwned>(
    to: &Address,
    path: &str,
) -> Result<T, RequestError> {
    let response = timeout(TIMEOUT, exchange(to, Method::GET, path, String::new())).await;
    let response =
        response.map_err(|_| RequestError::Unreachable("no response within 8 s".into()))??;
    serde_json::from_slice(&response).map_err(|_| RequestError::NotSluice)
}

/// Sends JSON with `POST path`. Failures are ignored.
pub(crate) async fn post_json<T: Serialize>(to: &Address, path: &str, body: &T) {
    let Ok(text) = serde_json::to_string(body) else { return };
    drop(timeout(TIMEOUT, exchange(to, Method::POST, path, text)).await);
}

/// The body of a response with status 200.
async fn exchange(
    to: &Address,
    method: Method,
    path: &str,
    json: String,
) -> Result<Bytes, RequestError> {
    let io_error = |e: std::io::Error| RequestError::Unreachable(e.to_string());
    let stream = TcpStream::connect((to.host.as_str(), to.port)).await.map_err(io_error)?;
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(HOST, to.to_string())
        .header(CONNECTION, "close")
        .header(CONTENT_TYPE, "application/json")
        .body(json)
        .map_err(|e| RequestError::Unreachable(e.to_string()))?;
    let (mut sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|e| request_error(&e))?;
    // Ends with the response. Its errors also reach the request.
    tokio::spawn(connection);
    let response = sender.send_request(request).await.map_err(|e| request_error(&e))?;
    if response.status() != StatusCode::OK {
        return Err(RequestError::NotSluice);
    }
    let body = to_bytes(Body::new(response.into_body()), MAX_RESPONSE).await;
    body.map_err(|e| RequestError::Unreachable(e.to_string()))
}

/// A connection that closes without a response comes from a tunnel whose scheduler is not running.
fn request_error(error: &hyper::Error) -> RequestError {
    if error.is_parse() {
        return RequestError::NotSluice;
    }
    RequestError::Unreachable(if error.is_incomplete_message() {
        "the connection was closed without a response".into()
    } else {
        error.to_string()
    })
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;

    /// What a request returns if the server sends `response`.
    async fn response_to(response: &str) -> Result<Vec<u8>, RequestError> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = Address { host: "127.0.0.1".into(), port: listener.local_addr().unwrap().port() };
        let serve = async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let read = stream.read(&mut [0; 1024]).await.unwrap();
            assert!(read > 0);
            stream.write_all(response.as_bytes()).await.unwrap();
        };
        tokio::join!(get_json(&to, "/"), serve).0
    }

    #[tokio::test]
    async fn only_successful_responses_have_a_body() {
        assert_eq!(response_to("HTTP/1.1 200 OK\r\nA: b\r\n\r\n[1]").await, Ok(vec![1]));
        for other in [
            "HTTP/1.1 404 Not Found\r\n\r\n[1]",
            "SSH-2.0-OpenSSH\r\n",
            "HTTP/1.1 200 OK\r\n\r\n[1",
        ] {
            assert_eq!(response_to(other).await, Err(RequestError::NotSluice), "{other}");
        }
    }

    #[tokio::test]
    async fn an_empty_response_differs_from_that_of_another_server() {
        let closed = "the connection was closed without a response";
        assert_eq!(response_to("").await, Err(RequestError::Unreachable(closed.into())));
    }
}
