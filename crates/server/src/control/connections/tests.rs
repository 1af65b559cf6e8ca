//! Connections in memory: places, deadlines, answers.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use axum::routing::{get, put};
use hyper::body::Frame;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::*;

const PATIENCE: Duration = Duration::from_secs(30);

/// Bytes that a stream takes before its client reads any of them.
const STREAM_BYTES: usize = 1 << 16;
/// Bytes of the answer at `/large`.
const LARGE: usize = 1 << 20;

/// Connects a client to `connections` through an in-memory stream, as one of users that have no
/// more places than their share.
async fn connect(connections: &mut Connections) -> DuplexStream {
    let user = connections.open.len() / share_of(CONNECTIONS_MAX);
    connect_as(connections, user as u32).await
}

/// Connects a client of a user.
async fn connect_as(connections: &mut Connections, user: u32) -> DuplexStream {
    let (client, server) = duplex(STREAM_BYTES);
    connections.add(server, PeerKey::User(user), ());
    client
}

/// Reads until the text received ends with `end`, or the connection is closed; returns the
/// text.
async fn hear(client: &mut DuplexStream, end: &str) -> String {
    let mut heard = Vec::new();
    let listen = async {
        loop {
            let mut piece = [0; 4096];
            let n = client.read(&mut piece).await.unwrap_or_default();
            heard.extend_from_slice(&piece[..n]);
            if n == 0 || heard.ends_with(end.as_bytes()) {
                break;
            }
        }
    };
    let heard_all = timeout(PATIENCE, listen).await;
    heard_all.expect("an answer, or the end");
    String::from_utf8(heard).expect("text")
}

async fn ask(client: &mut DuplexStream, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: t\r\n\r\n");
    client
        .write_all(request.as_bytes())
        .await
        .expect("it reads");
}

/// Body in two pieces, of which the other comes after a notification of `go`.
struct Pieces {
    go: Pin<Box<dyn Future<Output = ()> + Send>>,
    sent: usize,
}

impl Pieces {
    fn new(go: Arc<Notify>) -> Pieces {
        Pieces {
            go: Box::pin(async move { go.notified().await }),
            sent: 0,
        }
    }
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let piece = match self.sent {
            0 => "one piece",
            1 => {
                ready!(self.go.as_mut().poll(cx));
                "the other"
            }
            _ => return Poll::Ready(None),
        };
        self.sent += 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from(piece)))))
    }
}

/// Answers `/fast` at once, `/slow` after a notification of `go`, `/pieces` with [`Pieces`],
/// `/large` with [`LARGE`] bytes, and `/taken` once it has the body.
fn router(go: Arc<Notify>) -> Router {
    let later = go.clone();
    let pieces = move || async move { Response::new(Body::new(Pieces::new(later))) };
    let slow = move || async move {
        go.notified().await;
        "was slow"
    };
    Router::new()
        .route("/fast", get(async || "was fast"))
        .route("/slow", get(slow))
        .route("/pieces", get(pieces))
        .route("/large", get(async || "x".repeat(LARGE)))
        .route("/taken", put(async |_: Bytes| "was taken"))
        .fallback(async || (StatusCode::NOT_FOUND, "not here"))
}

#[tokio::test(start_paused = true)]
async fn no_request_in_progress_is_cut_off_and_who_has_no_place_is_told_when_to_ask_again() {
    let go = Arc::new(Notify::new());
    let mut connections = Connections::new(router(go.clone()), CONNECTIONS_MAX);
    let mut working = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        let mut client = connect(&mut connections).await;
        ask(&mut client, "/slow").await;
        working.push(client);
    }
    tokio::time::sleep(IDLE_MIN * 2).await;
    let mut extra = connect(&mut connections).await;
    ask(&mut extra, "/fast").await;
    let answer = hear(&mut extra, "}\n").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("retry-after: 1\r\n"), "{answer}");
    for client in &mut working {
        go.notify_one();
        let answer = hear(client, "was slow").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    // All connections are idle now.
    tokio::time::sleep(IDLE_MIN * 2).await;
    let mut next = connect(&mut connections).await;
    ask(&mut next, "/fast").await;
    let answer = hear(&mut next, "was fast").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn the_one_that_has_been_idle_for_longest_makes_room() {
    let mut connections = Connections::new(router(Arc::default()), CONNECTIONS_MAX);
    let mut idle = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        idle.push(connect(&mut connections).await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The two oldest connections stay: the first has just had an answer, the second has sent
    // half a request.
    ask(&mut idle[0], "/fast").await;
    hear(&mut idle[0], "was fast").await;
    idle[1].write_all(b"GET /fa").await.expect("it reads");
    tokio::time::sleep(IDLE_MIN).await;
    let mut next = connect(&mut connections).await;
    assert_eq!(hear(&mut idle[2], "").await, "", "closed");
    ask(&mut next, "/fast").await;
    hear(&mut next, "was fast").await;
    idle[1]
        .write_all(b"st HTTP/1.1\r\nhost: t\r\n\r\n")
        .await
        .expect("it reads");
    for at in [0, 1] {
        if at == 0 {
            ask(&mut idle[0], "/fast").await;
        }
        let answer = hear(&mut idle[at], "was fast").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{at}: {answer}");
    }
}

/// A client whose request arrives while it is asked to make room has to be asked again later, or it
/// would hold a place that nobody counts.
#[tokio::test(start_paused = true)]
async fn requests_that_arrive_meanwhile_win_no_places() {
    let go = Arc::new(Notify::new());
    let mut connections = Connections::new(router(go.clone()), CONNECTIONS_MAX);
    let share = share_of(CONNECTIONS_MAX);
    let mut idle = Vec::new();
    for _ in 0..share {
        idle.push(connect_as(&mut connections, 1).await);
        sleep(Duration::from_millis(20)).await;
    }
    // Each time but the first, two are asked, and the one without a request closes.
    for at in [0, 1, 3, 5, 7] {
        sleep(IDLE_MIN).await;
        // Its task has not run yet when its place is asked for.
        ask(&mut idle[at], "/slow").await;
        idle.push(connect_as(&mut connections, 1).await);
        sleep(IDLE_MIN).await;
        go.notify_one();
        let answer = hear(&mut idle[at], "was slow").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{at}: {answer}");
    }
    sleep(IDLE_MIN).await;
    let _last = connect_as(&mut connections, 1).await;
    sleep(IDLE_MIN).await;
    let open = connections.open.iter();
    let open = open.filter(|open| !open.task.is_finished()).count();
    assert_eq!(open, share);
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_comes_in_pieces_is_not_cut_off_between_them() {
    let go = Arc::new(Notify::new());
    let mut connections = Connections::new(router(go.clone()), CONNECTIONS_MAX);
    let mut download = connect(&mut connections).await;
    ask(&mut download, "/pieces").await;
    let begin = hear(&mut download, "one piece\r\n").await;
    assert!(begin.starts_with("HTTP/1.1 200"), "{begin}");
    // Younger connections, which are idle.
    let mut idle = Vec::new();
    for _ in 1..CONNECTIONS_MAX {
        sleep(Duration::from_millis(20)).await;
        idle.push(connect(&mut connections).await);
    }
    sleep(IDLE_MIN).await;
    let mut next = connect(&mut connections).await;
    ask(&mut next, "/fast").await;
    hear(&mut next, "was fast").await;
    assert_eq!(hear(&mut idle[0], "").await, "", "closed");
    go.notify_one();
    let rest = hear(&mut download, "0\r\n\r\n").await;
    assert!(rest.contains("the other"), "{rest}");
    // It is idle only now, and for less time than the others.
    sleep(IDLE_MIN).await;
    let _another = connect(&mut connections).await;
    assert_eq!(hear(&mut idle[1], "").await, "", "closed");
    ask(&mut download, "/fast").await;
    hear(&mut download, "was fast").await;
}

#[tokio::test(start_paused = true)]
async fn clients_that_have_just_come_are_not_taken_for_idle() {
    let mut connections = Connections::new(router(Arc::default()), CONNECTIONS_MAX);
    let mut fresh = Vec::new();
    for _ in 0..CONNECTIONS_MAX {
        fresh.push(connect(&mut connections).await);
    }
    let mut extra = connect(&mut connections).await;
    ask(&mut extra, "/fast").await;
    let answer = hear(&mut extra, "}\n").await;
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    ask(&mut fresh[0], "/fast").await;
    hear(&mut fresh[0], "was fast").await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_waits_for_a_body_that_nobody_wants() {
    let mut connections = Connections::new(router(Arc::default()), CONNECTIONS_MAX);
    let mut client = connect(&mut connections).await;
    let body = vec![b'x'; 1 << 20];
    for (method, path, status) in [("PUT", "/none", "404"), ("PUT", "/fast", "405")] {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: t\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        client.write_all(head.as_bytes()).await.expect("it reads");
        // The body is larger than the stream's buffer: writing all of it ends only if the
        // server reads it.
        let sent = timeout(PATIENCE, client.write_all(&body)).await;
        sent.expect("all is read")
            .expect("the connection stays open");
        let end = if status == "404" {
            "not here"
        } else {
            "\r\n\r\n"
        };
        let answer = hear(&mut client, end).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status}")),
            "{answer}"
        );
    }
    // The connection can be used for the next request.
    ask(&mut client, "/fast").await;
    let answer = hear(&mut client, "was fast").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_waits_to_be_told_is_not_told_to_go_on() {
    let mut connections = Connections::new(router(Arc::default()), CONNECTIONS_MAX);
    let mut client = connect(&mut connections).await;
    let head = "PUT /none HTTP/1.1\r\nhost: t\r\nexpect: 100-continue\r\ncontent-length: 9\r\n\r\n";
    client.write_all(head.as_bytes()).await.expect("it reads");
    let answer = hear(&mut client, "not here").await;
    assert!(answer.starts_with("HTTP/1.1 404"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_no_whole_head_is_closed() {
    let mut connections = Connections::new(router(Arc::default()), CONNECTIONS_MAX);
    let start = Instant::now();
    let mut silent = connect(&mut connections).await;
    silent.write_all(b"G").await.expect("it reads");
    assert_eq!(hear(&mut silent, "").await, "");
    // A byte now and then is no head either.
    let mut slow = connect(&mut connections).await;
    while slow.write_all(b"G").await.is_ok() {
        sleep(Duration::from_secs(1)).await;
        assert!(start.elapsed() < IDLE_MAX, "a byte a second holds a place");
    }
    // Time between requests counts as idle, and the deadline is that of each request.
    let mut patient = connect(&mut connections).await;
    for _ in 0..3 {
        for part in ["GET /fa", "st HTTP/1.1\r\nhos", "t: t\r\n\r\n"] {
            sleep(Duration::from_secs(4)).await;
            patient.write_all(part.as_bytes()).await.expect("it reads");
        }
        hear(&mut patient, "was fast").await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_sends_no_whole_body_is_told_so_and_closed() {
    let mut connections = Connections::new(router(Arc::default()), CONNECTIONS_MAX);
    let head = b"PUT /taken HTTP/1.1\r\nhost: t\r\ncontent-length: 100\r\n\r\n";
    let start = Instant::now();
    for sends_some in [false, true] {
        let client = connect(&mut connections).await;
        let (mut reading, mut writing) = tokio::io::split(client);
        let mut heard = String::new();
        let hear = timeout(PATIENCE, reading.read_to_string(&mut heard));
        let send = async {
            writing.write_all(head).await.expect("it reads");
            while sends_some && writing.write_all(b"x").await.is_ok() {
                sleep(Duration::from_secs(1)).await;
            }
        };
        let (ended, ()) = tokio::join!(hear, send);
        ended.expect("the end in time").expect("text");
        assert!(heard.starts_with("HTTP/1.1 408"), "{sends_some}: {heard}");
        assert!(heard.contains("connection: close\r\n"), "{heard}");
        assert!(heard.contains("within 10 s"), "{heard}");
    }
    assert!(start.elapsed() < Duration::from_secs(60));
    // Within the deadline, it may take its time.
    let mut client = connect(&mut connections).await;
    client.write_all(head).await.expect("it reads");
    for _ in 0..4 {
        sleep(Duration::from_secs(2)).await;
        client.write_all(&[b'x'; 25]).await.expect("it reads");
    }
    let answer = hear(&mut client, "was taken").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_no_answer_is_closed() {
    let mut connections = Connections::new(router(Arc::default()), CONNECTIONS_MAX);
    let mut client = connect(&mut connections).await;
    for _ in 0..100 {
        ask(&mut client, "/large").await;
    }
    sleep(IDLE_MAX).await;
    let mut heard = Vec::new();
    let ended = timeout(PATIENCE, client.read_to_end(&mut heard)).await;
    ended.expect("the end").expect("what was sent before");
    assert!(heard.len() <= STREAM_BYTES, "{}", heard.len());
    // One that takes a part now and then gets all.
    let mut slow = connect(&mut connections).await;
    ask(&mut slow, "/large").await;
    let mut heard = 0;
    while heard < LARGE {
        sleep(Duration::from_secs(9)).await;
        let mut piece = [0; STREAM_BYTES];
        let n = slow.read(&mut piece).await.expect("it is open");
        assert!(n > 0, "closed after {heard}");
        heard += n;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_leaves_a_quarter_of_the_places_to_others() {
    let go = Arc::new(Notify::new());
    let mut connections = Connections::new(router(go.clone()), CONNECTIONS_MAX);
    let share = share_of(CONNECTIONS_MAX);
    let mut working = Vec::new();
    for _ in 0..share {
        let mut client = connect_as(&mut connections, 1).await;
        ask(&mut client, "/slow").await;
        working.push(client);
    }
    // Further connections of the client are turned away, and those beyond its share of answers
    // closed.
    let mut silent = Vec::new();
    for _ in 0..CONNECTIONS_MAX / 2 {
        silent.push(connect_as(&mut connections, 1).await);
    }
    let answer = {
        ask(&mut silent[0], "/fast").await;
        hear(&mut silent[0], "}\n").await
    };
    assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
    assert!(answer.contains("192 connections of this user"), "{answer}");
    let last = silent.last_mut().expect("there are some");
    assert_eq!(hear(last, "").await, "");
    let mut other = connect_as(&mut connections, 2).await;
    ask(&mut other, "/fast").await;
    hear(&mut other, "was fast").await;
    // Once one of its own is idle, that makes room for another of its own.
    sleep(TURNED_AWAY_TIMEOUT).await;
    go.notify_one();
    hear(&mut working[0], "was slow").await;
    sleep(IDLE_MIN).await;
    let mut next = connect_as(&mut connections, 1).await;
    assert_eq!(hear(&mut working[0], "").await, "", "closed");
    ask(&mut next, "/fast").await;
    hear(&mut next, "was fast").await;
    ask(&mut other, "/fast").await;
    hear(&mut other, "was fast").await;
}

/// Returns an idle connection of a client that is refused.
fn refuse_as(connections: &mut Connections, client: u32) -> DuplexStream {
    let (own, server) = duplex(STREAM_BYTES);
    let error = ApiError::new(StatusCode::FORBIDDEN, "no role", "role");
    connections.refuse(server, PeerKey::User(client), error);
    own
}

#[tokio::test(start_paused = true)]
async fn a_client_without_rights_is_told_so_once_and_takes_no_place() {
    let mut connections = Connections::new(router(Arc::default()), CONNECTIONS_MAX);
    let refused = (0..CONNECTIONS_MAX).map(|_| refuse_as(&mut connections, 1));
    let mut refused: Vec<_> = refused.collect();
    let first = &mut refused[0];
    ask(first, "/fast").await;
    ask(first, "/fast").await;
    let answer = hear(first, "").await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert!(answer.contains("no role"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    // Closed at once, because too many others have not asked.
    let last = refused.last_mut().expect("there are some");
    assert_eq!(hear(last, "").await, "");
    // Those of one user leave some answers to others.
    let mut other = refuse_as(&mut connections, 2);
    ask(&mut other, "/fast").await;
    let answer = hear(&mut other, "").await;
    assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    assert!(connections.open.is_empty());
    let mut next = connect(&mut connections).await;
    ask(&mut next, "/fast").await;
    hear(&mut next, "was fast").await;
}

/// With few descriptors, connections that get one answer are to be few as well.
#[tokio::test(start_paused = true)]
async fn a_listener_with_few_places_refuses_few_at_a_time() {
    let mut connections = Connections::new(router(Arc::default()), CONNECTIONS_MIN);
    let refused = (0..CONNECTIONS_MIN as u32).map(|client| refuse_as(&mut connections, client));
    let mut refused: Vec<_> = refused.collect();
    let closed = refused.split_off(CONNECTIONS_MIN / PLACES_FOR_ANSWER);
    for mut client in refused {
        ask(&mut client, "/fast").await;
        let answer = hear(&mut client, "").await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    }
    for mut client in closed {
        assert_eq!(hear(&mut client, "").await, "", "closed at once");
    }
}

/// Connections of a listener whose clients need a token: the header `authorization` is one.
fn that_need_tokens(go: Arc<Notify>) -> Connections {
    let check = async |request: axum::extract::Request, next: axum::middleware::Next| {
        let activity = request.extensions().get::<Arc<Activity>>();
        let is_valid = request.headers().contains_key("authorization");
        activity
            .expect("each request has it")
            .showed_token(is_valid);
        if is_valid {
            next.run(request).await
        } else {
            (StatusCode::UNAUTHORIZED, "no token").into_response()
        }
    };
    let router = router(go).layer(axum::middleware::from_fn(check));
    Connections::that_need_tokens(router, CONNECTIONS_MAX)
}

async fn ask_with_token(client: &mut DuplexStream, path: &str) {
    let request = format!("GET {path} HTTP/1.1\r\nhost: t\r\nauthorization: t\r\n\r\n");
    let sent = client.write_all(request.as_bytes()).await;
    sent.expect("it reads");
}

/// Opens connections as users by turns, each with the beginning of a request.
async fn flood(connections: &mut Connections, users: &[u32], number: usize) -> Vec<DuplexStream> {
    let mut all = Vec::new();
    for user in users.iter().cycle().take(number) {
        let mut client = connect_as(connections, *user).await;
        // Many are closed at once.
        let _ = client.write_all(b"G").await;
        all.push(client);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn strangers_of_two_clients_keep_no_other_out_and_leave_it_a_quarter_of_the_places() {
    let mut connections = that_need_tokens(Arc::default());
    let start = Instant::now();
    let mut strangers = Vec::new();
    let mut served = Vec::new();
    // More than a quarter: further ones have places as long as strangers give them up.
    for round in 0..CONNECTIONS_MAX / 2 {
        let more = if round == 0 { 4 * CONNECTIONS_MAX } else { 8 };
        strangers.extend(flood(&mut connections, &[1, 2], more).await);
        let mut client = connect_as(&mut connections, 3).await;
        ask_with_token(&mut client, "/fast").await;
        let answer = hear(&mut client, "was fast").await;
        assert!(answer.starts_with("HTTP/1.1 200"), "{round}: {answer}");
        served.push(client);
    }
    assert_eq!(start.elapsed(), Duration::ZERO, "nobody was waited for");
    let open = connections.strangers().count();
    assert!(open <= share_of(CONNECTIONS_MAX), "{open} strangers");
    // A quarter of the places is kept whatever strangers do, also without a request.
    for _ in 0..3 {
        sleep(IDLE_MIN).await;
        strangers.extend(flood(&mut connections, &[1, 2, 4, 5], 4 * CONNECTIONS_MAX).await);
    }
    let mut kept = 0;
    for mut client in served {
        let request = b"GET /fast HTTP/1.1\r\nhost: t\r\nauthorization: t\r\n\r\n";
        // Further ones may have been closed.
        let _ = client.write_all(request).await;
        kept += usize::from(hear(&mut client, "was fast").await.ends_with("was fast"));
    }
    assert!(
        kept >= CONNECTIONS_MAX / LEFT_TO_OTHERS,
        "{kept} connections"
    );
}

#[tokio::test(start_paused = true)]
async fn strangers_give_way_the_oldest_first_whatever_they_do() {
    let mut connections = that_need_tokens(Arc::default());
    let share = share_of(CONNECTIONS_MAX);
    let body = b"PUT /taken HTTP/1.1\r\nhost: t\r\ncontent-length: 9\r\n\r\n";
    // Each of another client, so that none has more than the others.
    let mut strangers = Vec::new();
    for user in 0..share as u32 {
        let mut client = connect_as(&mut connections, user).await;
        match user % 3 {
            0 => client.write_all(b"GET /fa").await.expect("it reads"),
            1 => client.write_all(body).await.expect("it reads"),
            _ => {}
        }
        strangers.push(client);
        sleep(Duration::from_millis(1)).await;
    }
    let mut newcomers = Vec::new();
    for (at, stranger) in strangers.iter_mut().enumerate().take(6) {
        let mut client = connect_as(&mut connections, 1000).await;
        ask_with_token(&mut client, "/fast").await;
        hear(&mut client, "was fast").await;
        assert_eq!(hear(stranger, "").await, "", "{at} is closed");
        // It is none itself any more, so that there is a place for another one.
        assert_eq!(connections.strangers().count(), share - 1);
        newcomers.push(client);
        newcomers.push(connect_as(&mut connections, 2000 + at as u32).await);
    }
    // The next one is there, and ends its request.
    let rest = b"st HTTP/1.1\r\nhost: t\r\nauthorization: t\r\n\r\n";
    strangers[6].write_all(rest).await.expect("it reads");
    let answer = hear(&mut strangers[6], "was fast").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// Whoever shows a token without delay is served although strangers of the same address come
/// without end, as those of all local processes are.
#[tokio::test(start_paused = true)]
async fn strangers_of_the_same_client_keep_no_token_out() {
    let mut connections = that_need_tokens(Arc::default());
    let mut strangers = flood(&mut connections, &[1], 2 * CONNECTIONS_MAX).await;
    for _ in 0..5 {
        let mut client = connect_as(&mut connections, 1).await;
        strangers.extend(flood(&mut connections, &[1], CONNECTIONS_MAX / 2).await);
        ask_with_token(&mut client, "/fast").await;
        hear(&mut client, "was fast").await;
    }
}

#[tokio::test(start_paused = true)]
async fn requests_with_a_token_are_not_cut_off_for_strangers() {
    let go = Arc::new(Notify::new());
    let mut connections = that_need_tokens(go.clone());
    let mut slow = connect_as(&mut connections, 1).await;
    ask_with_token(&mut slow, "/slow").await;
    let mut reading = connect_as(&mut connections, 1).await;
    ask_with_token(&mut reading, "/fast").await;
    hear(&mut reading, "was fast").await;
    let begun = b"GET /fast HTTP/1.1\r\nhost: t\r\nauthor";
    reading.write_all(begun).await.expect("it reads");
    let mut expired = connect_as(&mut connections, 1).await;
    ask_with_token(&mut expired, "/fast").await;
    hear(&mut expired, "was fast").await;
    // From then on it is a stranger, older than all others of the client.
    ask(&mut expired, "/fast").await;
    hear(&mut expired, "no token").await;
    let own = flood(&mut connections, &[1], CONNECTIONS_MAX).await;
    let others = flood(&mut connections, &[2, 3, 4], 2 * CONNECTIONS_MAX).await;
    assert_eq!(hear(&mut expired, "").await, "", "closed");
    reading
        .write_all(b"ization: t\r\n\r\n")
        .await
        .expect("it is open");
    let answer = hear(&mut reading, "was fast").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    go.notify_one();
    let answer = hear(&mut slow, "was slow").await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    drop((own, others));
}

#[test]
fn few_descriptors_leave_few_places_to_each_listener() {
    assert_eq!(places(CONNECTIONS_MAX, 1 << 20, 4), CONNECTIONS_MAX);
    assert_eq!(places(CONNECTIONS_MAX, 1024, 1), 64);
    assert_eq!(places(CONNECTIONS_MAX, 1024, 4), 16);
    // Somebody has to be served.
    assert_eq!(places(CONNECTIONS_MAX, 64, 4), CONNECTIONS_MIN);
    assert_eq!(places(CONNECTIONS_MAX, 4096, 0), CONNECTIONS_MAX);
}
