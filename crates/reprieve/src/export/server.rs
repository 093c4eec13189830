//! A small HTTP server for scrapes: one request a connection, `GET` alone, two pages.
//!
//! A few threads take connections, so that slow clients cost a thread and no memory; further ones wait in the kernel's queue.
//! Each exchange has a deadline and a largest request. Requests are parsed by httparse, hyper's parser. The known small
//! servers bring no deadlines, and hyper would bring an asynchronous runtime.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::page::{Form, Pages};
use crate::failure::Failure;

/// Connections that are answered at a time. Prometheus has one for each of its servers.
const MOST_CLIENTS: usize = 4;
/// The longest exchange. Prometheus gives up after 10 s by default.
const TIME_LIMIT: Duration = Duration::from_secs(2);
/// The largest request, bytes.
const MOST_REQUEST_BYTES: usize = 8 << 10;
/// The most headers of a request.
const MOST_HEADERS: usize = 64;
/// If no connection can be taken, files are exhausted: wait until others have closed some.
const BACK_OFF: Duration = Duration::from_millis(100);
/// The stack of a thread, bytes: a request fits several times.
const STACK_BYTES: usize = 128 << 10;

const HOME: &str = "<!DOCTYPE html>\n<html lang=\"en\"><title>Reprieve</title>\n<h1>Reprieve</h1>\n\
                    <p><a href=\"/metrics\">Metrics</a></p>\n</html>\n";

/// An address that is ours.
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Takes the address.
    ///
    /// # Errors
    /// [`Failure::Missing`]: somebody else has it, it is no address of this machine, or the port is a privileged one.
    pub fn bind(address: SocketAddr) -> Result<Server, Failure> {
        let refused = |error: io::Error| {
            let way_out = match error.kind() {
                ErrorKind::AddrInUse => {
                    "end the program that serves there (ss -ltnp), or choose another port with --listen"
                }
                ErrorKind::PermissionDenied => "choose a port above 1023 with --listen",
                _ => "choose an address of this machine with --listen",
            };
            Failure::Missing(format!("cannot serve {address}: {error}; {way_out}"))
        };
        let listener = TcpListener::bind(address).map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Server { listener, address })
    }

    /// The address, with the port that the kernel chose if port 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until the process ends.
    ///
    /// # Errors
    /// The system starts no further thread.
    pub fn serve(self, pages: Arc<Pages>) -> Result<(), Failure> {
        let listener = Arc::new(self.listener);
        for _ in 0..MOST_CLIENTS {
            let (listener, pages) = (Arc::clone(&listener), Arc::clone(&pages));
            let thread = std::thread::Builder::new().name("serve".into()).stack_size(STACK_BYTES);
            thread.spawn(move || answer_all(&listener, &pages)).map_err(|error| {
                Failure::Missing(format!(
                    "cannot start a thread: {error}; raise the limit of processes (ulimit -u)"
                ))
            })?;
        }
        Ok(())
    }
}

fn answer_all(listener: &TcpListener, pages: &Pages) {
    loop {
        match listener.accept() {
            // A client that leaves or is too slow is its own problem.
            Ok((stream, _)) => drop(exchange(stream, pages)),
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(_) => std::thread::sleep(BACK_OFF),
        }
    }
}

/// One request and its answer.
fn exchange(mut stream: TcpStream, pages: &Pages) -> io::Result<()> {
    let deadline = Instant::now() + TIME_LIMIT;
    let answer = receive(&mut stream, deadline, pages)?;
    let mut rest = &answer[..];
    while !rest.is_empty() {
        stream.set_write_timeout(Some(left(deadline)?))?;
        match stream.write(rest) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => rest = &rest[written..],
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    // If it were closed with a part of the request unread, the kernel would reset it, and the client could lose the answer.
    stream.shutdown(Shutdown::Write)?;
    let mut unread = [0; 1024];
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        if stream.read(&mut unread)? == 0 {
            return Ok(());
        }
    }
}

/// Reads a request, and makes the answer.
fn receive(stream: &mut TcpStream, deadline: Instant, pages: &Pages) -> io::Result<Vec<u8>> {
    let mut request = [0; MOST_REQUEST_BYTES];
    let mut length = 0;
    loop {
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut request[length..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(read) => length += read,
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        }
        if let Some(answer) = answer(&request[..length], pages) {
            return Ok(answer);
        }
        if length == request.len() {
            return Ok(refusal("431 Request Header Fields Too Large", ""));
        }
    }
}

/// What is left until the deadline: more than nothing, which a socket would take for no limit.
fn left(deadline: Instant) -> io::Result<Duration> {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}

/// The answer to a request; `None` while a part of it is missing.
fn answer(request: &[u8], pages: &Pages) -> Option<Vec<u8>> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
    let mut parsed = httparse::Request::new(&mut headers);
    match parsed.parse(request) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => {
            return Some(refusal("431 Request Header Fields Too Large", ""));
        }
        Err(_) => return Some(refusal("400 Bad Request", "")),
    }
    if parsed.method != Some("GET") {
        return Some(refusal("405 Method Not Allowed", "Allow: GET\r\n"));
    }
    let path = parsed.path.unwrap_or_default();
    match path.split_once('?').map_or(path, |(path, _)| path) {
        "/metrics" => {
            let accept = parsed.headers.iter().find(|header| header.name.eq_ignore_ascii_case("accept"));
            let accept = accept.and_then(|header| str::from_utf8(header.value).ok()).unwrap_or_default();
            let form = Form::wanted(accept);
            Some(response("200 OK", form.media_type(), "", &pages.text(form)))
        }
        "/" => Some(response("200 OK", "text/html; charset=utf-8", "", HOME)),
        _ => Some(refusal("404 Not Found", "")),
    }
}

fn refusal(status: &str, header: &str) -> Vec<u8> {
    response(status, "text/plain; charset=utf-8", header, &format!("{status}\n"))
}

fn response(status: &str, media_type: &str, header: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n{header}Connection: close\r\n\r\n{body}"
    )
    .into_bytes()
}
