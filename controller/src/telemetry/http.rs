//! A small HTTP/1.1 server for pages that fit into memory: `GET` and `HEAD`, one request per connection. Connections are limited
//! in number and time, so that silent clients can't starve others.

use std::collections::VecDeque;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, yield_now};
use tokio::time::{Instant, sleep, sleep_until, timeout};

/// Maximum number of connections per listener.
const CONNECTIONS: usize = 256;
/// A connection is not replaced before this age, because its request may be on its way.
const MIN_AGE: Duration = Duration::from_millis(100);
/// Deadline for the head of a request.
const HEAD: Duration = Duration::from_secs(1);
/// Maximum size of the head of a request, in bytes.
const HEAD_LIMIT: usize = 8 * 1024;

/// The server's response for a path.
pub(crate) struct Page {
    /// Code and reason.
    pub(crate) status: &'static str,
    pub(crate) content_type: &'static str,
    pub(crate) body: String,
}

pub(crate) const OK: &str = "200 OK";
pub(crate) const NOT_FOUND: &str = "404 Not Found";
pub(crate) const UNAVAILABLE: &str = "503 Service Unavailable";
pub(crate) const TEXT: &str = "text/plain; charset=utf-8";

/// The page of a path.
pub(crate) type Pages = Box<dyn Fn(&str) -> Page + Send + Sync>;

/// Listens on all IPv4 and IPv6 addresses, or on those of the only family.
pub(crate) async fn listen(port: u16) -> io::Result<TcpListener> {
    let both = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
    if let Ok(listener) = TcpListener::bind(both).await {
        return Ok(listener);
    }
    TcpListener::bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, port))).await
}

struct HttpConnection {
    task: AbortHandle,
    since: Instant,
    /// The whole head of its request has arrived.
    has_request: Arc<AtomicBool>,
}

/// Serves requests until the future is dropped. Each connection ends after `deadline`. At the limit, a new connection replaces
/// the oldest one that has not sent its request.
pub(crate) async fn serve(listener: TcpListener, deadline: Duration, pages: Pages) {
    let pages = Arc::new(pages);
    let mut connections: VecDeque<HttpConnection> = VecDeque::new();
    let mut accepted = 0_usize;
    loop {
        let mut stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Possibly too many open files: the pause avoids a busy loop.
                tracing::warn!(%error, "could not accept a connection");
                sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        connections.retain(|connection| !connection.task.is_finished());
        if connections.len() >= CONNECTIONS {
            let waits =
                |connection: &HttpConnection| !connection.has_request.load(Ordering::Relaxed);
            let oldest = connections.iter().position(waits).unwrap_or_default();
            if let Some(oldest) = connections.remove(oldest) {
                sleep_until(oldest.since + MIN_AGE).await;
                oldest.task.abort();
            }
        }
        let pages = Arc::clone(&pages);
        let has_request = Arc::new(AtomicBool::new(false));
        let connection = {
            let has_request = Arc::clone(&has_request);
            async move {
                // A client's error ends its connection and needs no log line.
                let Ok(Ok(Some(head))) = timeout(HEAD, read_head(&mut stream)).await else {
                    return;
                };
                has_request.store(true, Ordering::Relaxed);
                let _ = stream.write_all(&response(&head, &pages)).await;
            }
        };
        let task = tokio::spawn(async move {
            let _ = timeout(deadline, connection).await;
        });
        connections.push_back(HttpConnection {
            task: task.abort_handle(),
            since: Instant::now(),
            has_request,
        });
        accepted = accepted.wrapping_add(1);
        if accepted.is_multiple_of(CONNECTIONS / 2) {
            // Serves a request that arrived together with its connection before newer connections can replace it.
            yield_now().await;
        }
    }
}

/// `None`: the client closed the connection or sent too much.
async fn read_head(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::with_capacity(1024);
    loop {
        if stream.read_buf(&mut head).await? == 0 || head.len() > HEAD_LIMIT {
            return Ok(None);
        }
        if head.windows(4).any(|end| end == b"\r\n\r\n") {
            return Ok(Some(head));
        }
    }
}

fn response(head: &[u8], pages: &Pages) -> Vec<u8> {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let request = (words.next(), words.next(), words.next(), words.next());
    let page = match request {
        (Some("GET" | "HEAD"), Some(target), Some(version), None)
            if version.starts_with("HTTP/1.") =>
        {
            pages(target.split('?').next().unwrap_or_default())
        }
        (Some(_), Some(_), Some(version), None) if version.starts_with("HTTP/1.") => Page {
            status: "405 Method Not Allowed\r\nAllow: GET, HEAD",
            content_type: TEXT,
            body: String::new(),
        },
        _ => Page {
            status: "400 Bad Request",
            content_type: TEXT,
            body: String::new(),
        },
    };
    let Page {
        status,
        content_type,
        body,
    } = page;
    let mut response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len(),
    );
    if request.0 != Some("HEAD") {
        response.push_str(&body);
    }
    response.into_bytes()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Status and body of the response to a request.
    pub(crate) async fn request(port: u16, line: &str) -> (String, String) {
        try_request(port, line).await.expect("a response")
    }

    async fn try_request(port: u16, line: &str) -> io::Result<(String, String)> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
        let request = format!("{line} HTTP/1.1\r\nHost: x\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut response = String::new();
        stream.read_to_string(&mut response).await?;
        let (head, body) = response.split_once("\r\n\r\n").unwrap_or_default();
        let status = head.lines().next().unwrap_or_default();
        let status = status.strip_prefix("HTTP/1.1 ").unwrap_or_default();
        Ok((status.to_owned(), body.to_owned()))
    }

    #[test]
    fn a_response_follows_from_the_request_line() {
        let pages: Pages = Box::new(|path| Page {
            status: if path == "/a" { OK } else { NOT_FOUND },
            content_type: TEXT,
            body: format!("page {path}\n"),
        });
        for (line, status, body) in [
            ("GET /a HTTP/1.1", "200 OK", "page /a\n"),
            ("GET /a?x=1 HTTP/1.0", "200 OK", "page /a\n"),
            ("HEAD /a HTTP/1.1", "200 OK", ""),
            ("GET /b HTTP/1.1", "404 Not Found", "page /b\n"),
            ("POST /a HTTP/1.1", "405 Method Not Allowed", ""),
            ("GET /a", "400 Bad Request", ""),
            ("GET /a b HTTP/1.1", "400 Bad Request", ""),
            ("GET /a HTTP/2.0", "400 Bad Request", ""),
            ("", "400 Bad Request", ""),
        ] {
            let response = response(format!("{line}\r\nHost: x\r\n\r\n").as_bytes(), &pages);
            let response = String::from_utf8(response).expect("text");
            let (head, found) = response.split_once("\r\n\r\n").expect("a head");
            assert!(
                head.starts_with(&format!("HTTP/1.1 {status}\r\n")),
                "{line}: {head}"
            );
            assert_eq!(found, body, "{line}");
        }
    }

    async fn serve_ok(deadline: Duration) -> u16 {
        let listener = listen(0).await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let pages: Pages = Box::new(|_| Page {
            status: OK,
            content_type: TEXT,
            body: "ok\n".to_owned(),
        });
        let listener = listener.into_std().expect("a socket");
        // On a thread of its own, as in the controller.
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread();
            let runtime = { runtime }.enable_all().build().expect("a runtime");
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).expect("a socket");
                serve(listener, deadline, pages).await;
            });
        });
        port
    }

    async fn connect(port: u16) -> TcpStream {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await;
        stream.expect("the server listens")
    }

    /// 1,000 connections that send nothing, and are opened again after the server has closed them.
    #[tokio::test(flavor = "current_thread")]
    async fn silent_connections_do_not_starve_others() {
        const SILENT: usize = 1000;
        // The kubelet's timeout is a second; this machine may be busy.
        const PATIENCE: Duration = Duration::from_secs(3);
        let port = serve_ok(Duration::from_secs(2)).await;
        for _ in 0..SILENT {
            tokio::spawn(async move {
                loop {
                    let _ = connect(port).await.read(&mut [0]).await;
                    sleep(Duration::from_millis(500)).await;
                }
            });
        }
        let begun = Instant::now();
        let (mut asked, mut failed_in_a_row) = (0, 0);
        while begun.elapsed() < Duration::from_secs(4) {
            let answer = timeout(PATIENCE, try_request(port, "GET /livez")).await;
            let is_ok = matches!(&answer, Ok(Ok((_, body))) if body == "ok\n");
            failed_in_a_row = if is_ok { 0 } else { failed_in_a_row + 1 };
            // The kubelet restarts a container after three failures.
            assert!(failed_in_a_row < 3, "request {asked}: {answer:?}");
            asked += 1;
            sleep(Duration::from_millis(50)).await;
        }
        assert!(asked > 10, "{asked} requests");
    }

    #[tokio::test(flavor = "current_thread")]
    async fn every_connection_ends() {
        let port = serve_ok(Duration::from_secs(2)).await;
        let begun = Instant::now();
        for (case, sent) in [
            ("nothing is sent", String::new()),
            ("half a request line", "GET /li".to_owned()),
            (
                "a head without an end",
                "GET / HTTP/1.1\r\nHost: x\r\n".to_owned(),
            ),
            (
                "a head that is too long",
                format!("GET / HTTP/1.1\r\nA: {}", "a".repeat(HEAD_LIMIT)),
            ),
        ] {
            let mut stream = connect(port).await;
            stream
                .write_all(sent.as_bytes())
                .await
                .expect("the server reads");
            let mut answer = Vec::new();
            let ended = timeout(HEAD * 2, stream.read_to_end(&mut answer)).await;
            assert!(ended.is_ok(), "{case}: the connection is open");
            assert!(answer.is_empty(), "{case}: {answer:?}");
        }
        assert!(begun.elapsed() < HEAD * 5);
    }

    /// A slowly arriving request is cut off at the deadline of its head, although bytes keep arriving.
    #[tokio::test(flavor = "current_thread")]
    async fn a_slow_request_is_cut_off() {
        let port = serve_ok(Duration::from_secs(2)).await;
        let mut stream = connect(port).await;
        let begun = Instant::now();
        while stream.write_all(b"a").await.is_ok() {
            assert!(begun.elapsed() < HEAD * 2, "the connection is open");
            sleep(Duration::from_millis(100)).await;
        }
    }
}
