//! Live figures as server-sent events.

use axum::http::header::CONTENT_TYPE;
use tidegate_api::live::LiveView;
use tokio::time::{Instant, advance};

use super::*;

/// Answer whose events are read one by one.
struct Following {
    body: Body,
}

impl Following {
    async fn start(api: &Api<Pretended>, query: &str) -> Result<Following, StatusCode> {
        let reader = Caller::with(Some(tidegate_api::access::Role::Read));
        Following::start_as(reader, api, query).await
    }

    async fn start_as(
        caller: Caller,
        api: &Api<Pretended>,
        query: &str,
    ) -> Result<Following, StatusCode> {
        let request = Request::builder()
            .uri(format!("/v1/events{query}"))
            .extension(caller)
            .body(Body::empty());
        let answer = router(api.clone()).oneshot(request.expect("good")).await;
        let answer = answer.expect("infallible");
        if answer.status() != StatusCode::OK {
            return Err(answer.status());
        }
        assert_eq!(answer.headers()[CONTENT_TYPE], "text/event-stream");
        Ok(Following {
            body: answer.into_body(),
        })
    }

    /// Returns the next event with its name; `None` at the end of the answer.
    async fn next(&mut self) -> Option<(String, String)> {
        let frame = self.body.frame().await?.expect("no error");
        let data = frame.into_data().expect("no trailers");
        let text = String::from_utf8(data.to_vec()).expect("text");
        let text = text.strip_suffix("\n\n").expect("a whole event");
        let (name, data) = text.split_once('\n').expect("two lines");
        let name = name.strip_prefix("event: ").expect("a name");
        let data = data.strip_prefix("data: ").expect("data");
        assert!(!data.contains('\n'), "{data}");
        Some((name.to_owned(), data.to_owned()))
    }

    async fn sample(&mut self) -> LiveView {
        let (name, data) = self.next().await.expect("one more");
        assert_eq!(name, "sample", "{data}");
        serde_json::from_str(&data).expect("what the page reads")
    }
}

fn api(plane: &Pretended) -> Api<Pretended> {
    Api::new(plane.clone(), Clock::system())
}

#[tokio::test(start_paused = true)]
async fn events_come_once_a_second_with_what_was_done_in_it() {
    let plane = Pretended::new();
    let api = api(&plane);
    let mut following = Following::start(&api, "").await.expect("served");
    let first = following.sample().await;
    let names: Vec<_> = first.vms.iter().map(|vm| vm.vm.as_str()).collect();
    assert_eq!(names, ["oltp", "bulk", "dss"]);
    assert_eq!(first.vms[0].reads_per_s, None);
    plane.with(|devices| {
        devices[0].taken_at += Nanos::from_secs(2);
        devices[0].stats.ended += 100;
        devices[0].vms[0]
            .stats
            .latency
            .record(Nanos::from_millis(3));
    });
    let start = Instant::now();
    let second = following.sample().await;
    assert_eq!(start.elapsed(), Duration::from_secs(1));
    assert_eq!(second.devices[0].ios_per_s, Some(50.0));
    let p99 = second.vms[0].p99_ns.expect("a request");
    assert!((3_000_000..3_200_000).contains(&p99), "{p99}");
    assert_eq!(second.vms[2].p99_ns, None, "nothing on the other device");
}

#[tokio::test(start_paused = true)]
async fn all_subscribers_have_the_same_events_and_newcomers_the_last_one_at_once() {
    let plane = Pretended::new();
    let api = api(&plane);
    let mut first = Following::start(&api, "").await.expect("served");
    first.sample().await;
    let start = Instant::now();
    let mut second = Following::start(&api, "").await.expect("served");
    second.sample().await;
    assert_eq!(start.elapsed(), Duration::ZERO, "the last one");
    for _ in 0..3 {
        assert_eq!(first.sample().await, second.sample().await);
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_ends_after_the_number_of_events_that_was_asked_for() {
    let api = api(&Pretended::new());
    let mut following = Following::start(&api, "?count=2").await.expect("served");
    following.sample().await;
    following.sample().await;
    assert_eq!(following.next().await, None);
    for query in ["?count=0", "?count=-1", "?count=x", "?every=1"] {
        let refused = Following::start(&api, query).await;
        assert_eq!(refused.err(), Some(StatusCode::BAD_REQUEST), "{query}");
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_asked_while_nobody_listens() {
    let plane = Pretended::new();
    let api = api(&plane);
    let following = Following::start(&api, "").await.expect("served");
    let subscribers = || format!("{:?}", api.events);
    assert!(
        subscribers().contains("subscribers: 1"),
        "{}",
        subscribers()
    );
    drop(following);
    assert!(
        subscribers().contains("subscribers: 0"),
        "{}",
        subscribers()
    );
    let asked = plane.asked();
    for _ in 0..10 {
        advance(Duration::from_secs(1)).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(plane.asked(), asked, "the task went on");
    let mut again = Following::start(&api, "").await.expect("served");
    assert_eq!(again.sample().await.vms[0].reads_per_s, None, "a new start");
    assert!(plane.asked() > asked);
}

#[tokio::test(start_paused = true)]
async fn one_that_polls_alone_gets_rates_and_costs_nothing_once_it_has_left() {
    let plane = Pretended::new();
    let api = api(&plane);
    let mut rates = Vec::new();
    for _ in 0..3 {
        let mut polled = Following::start(&api, "?count=1").await.expect("served");
        rates.push(polled.sample().await.vms[0].reads_per_s);
        assert_eq!(polled.next().await, None, "one was asked for");
        // The events of another second are made meanwhile.
        plane.with(|devices| devices[0].taken_at += Nanos::from_secs(1));
        advance(Duration::from_millis(1100)).await;
        tokio::task::yield_now().await;
    }
    assert_eq!(rates[0], None, "there was nothing before");
    assert!(rates[1].is_some() && rates[2].is_some(), "{rates:?}");
    let seconds = |n: u64| async move {
        for _ in 0..n {
            advance(Duration::from_secs(1)).await;
            tokio::task::yield_now().await;
        }
    };
    seconds(4).await;
    let asked = plane.asked();
    seconds(10).await;
    assert_eq!(plane.asked(), asked, "the task went on");
    let mut again = Following::start(&api, "").await.expect("served");
    assert_eq!(again.sample().await.vms[0].reads_per_s, None, "a new start");
}

#[tokio::test(start_paused = true)]
async fn subscribers_are_bounded_and_one_that_leaves_makes_room() {
    let api = api(&Pretended::new());
    let mut all = Vec::new();
    for _ in 0..crate::control::events::SUBSCRIBERS_MAX {
        all.push(Following::start(&api, "").await.expect("served"));
    }
    let refused = Following::start(&api, "").await;
    assert_eq!(refused.err(), Some(StatusCode::SERVICE_UNAVAILABLE));
    all.pop();
    Following::start(&api, "").await.expect("there is room");
}

#[tokio::test(start_paused = true)]
async fn pages_and_clients_of_the_api_keep_each_other_from_no_events() {
    let api = api(&Pretended::new());
    let visitor = || Caller::Visitor("127.0.0.1:40000".parse().expect("an address"));
    let mut all = Vec::new();
    for _ in 0..crate::control::events::SUBSCRIBERS_MAX {
        let page = Following::start_as(visitor(), &api, "").await;
        all.push(page.expect("served"));
    }
    let refused = Following::start_as(visitor(), &api, "").await;
    assert_eq!(refused.err(), Some(StatusCode::SERVICE_UNAVAILABLE));
    let mut client = Following::start(&api, "").await.expect("its own places");
    let sample = client.sample().await;
    // One event needs no place.
    let polled = Following::start_as(visitor(), &api, "?count=1").await;
    let mut polled = polled.expect("served");
    assert_eq!(polled.sample().await, sample);
    assert_eq!(polled.next().await, None, "one was asked for");
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_is_slow_misses_events_and_delays_no_other() {
    let api = api(&Pretended::new());
    let mut slow = Following::start(&api, "").await.expect("served");
    let mut quick = Following::start(&api, "").await.expect("served");
    let mut last = quick.sample().await;
    for _ in 0..20 {
        last = quick.sample().await;
    }
    // Two that were waiting, then the next one that is made.
    slow.sample().await;
    slow.sample().await;
    let start = Instant::now();
    let next = slow.sample().await;
    assert!(start.elapsed() > Duration::ZERO);
    assert_eq!(next, quick.sample().await);
    assert_eq!(last.vms.len(), next.vms.len());
}

#[tokio::test(start_paused = true)]
async fn a_loop_that_does_not_answer_is_a_problem_and_events_go_on_after_it() {
    let plane = Pretended::new();
    let api = api(&plane);
    let mut following = Following::start(&api, "").await.expect("served");
    following.sample().await;
    plane.with(|devices| devices[1].name = "stuck".to_owned());
    let (name, data) = following.next().await.expect("one more");
    assert_eq!(name, "problem");
    assert!(data.contains("did not answer"), "{data}");
    plane.with(|devices| devices[1].name = "disk1".to_owned());
    // The next question may have been asked before that.
    let mut last = name;
    while last == "problem" {
        (last, _) = following.next().await.expect("one more");
    }
    assert_eq!(last, "sample");
}
