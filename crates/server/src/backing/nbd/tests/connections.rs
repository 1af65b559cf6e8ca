//! Several connections to one server: offers that differ, two servers at one socket, and answers
//! that are under way when one connection breaks.

use super::super::peer::Offer;
use super::*;

#[test]
fn connections_with_different_exports_are_refused_in_words() {
    let smaller = Offer {
        abilities: SHARED,
        size: Some(SIZE / 2),
    };
    for (second, expected) in [
        (smaller, "4 MiB on one connection and 2 MiB on the next"),
        (ALL.into(), "transmission flags 0x"),
    ] {
        let setup = Setup::without_faults();
        setup.peer.offer(vec![SHARED.into(), second]);
        let mut config = connecting(setup.dir.path(), &setup.socket(), 2);
        config.daemon.open_within = Duration::from_millis(100);
        let refused = Server::try_start(config).err().expect("refused");
        let message = refused.to_string();
        assert!(message.contains(expected), "{message}");
        assert_eq!(setup.peer.requests(), 0);
    }
}

#[test]
fn a_server_that_shares_its_cache_no_more_gets_one_connection_until_it_does() {
    let setup = Setup::new(SHARED, cuts(20));
    let server = Server::start(connecting(setup.dir.path(), &setup.socket(), 3));
    let mut client = server.connect("disk");
    let plan = |seed| Plan {
        seed,
        start: 0,
        size: SIZE,
        block: 512,
        blocks_max: 64,
        depth: 8,
        requests: 200,
    };
    for (seed, abilities, connections) in [(1, SHARED, 3), (2, ALL, 1), (3, SHARED, 3)] {
        setup.peer.offer(vec![abilities.into()]);
        let before = setup.peer.cuts();
        run(&mut client, &plan(seed));
        assert!(setup.peer.cuts() > before, "connected again");
        wait_until("old connections to end", || {
            setup.peer.serving() == connections
        });
    }
    assert_eq!((failure(&server), setup.peer.overlaps()), (None, 0));
    server.stop().unwrap();
}

#[test]
fn connections_to_two_servers_at_one_socket_are_not_used_together() {
    let (first, second) = (Setup::without_faults(), Setup::without_faults());
    let offers = vec![Offer::from(SHARED)];
    first.peer.offer(offers.clone());
    second.peer.offer(offers);
    // The second server takes the socket once the first one has accepted a connection, with which
    // that goes on.
    let socket = first.dir.path().join("taken");
    let listener = UnixListener::bind(&socket).unwrap();
    let (through, other, path) = (first.socket(), second.socket(), socket.clone());
    std::thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        std::fs::rename(other, path).unwrap();
        let server = UnixStream::connect(through).unwrap();
        let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        let _ = std::io::copy(&mut &server, &mut &client);
    });
    let server = Server::start(connecting(first.dir.path(), &socket, 2));
    wait_until("all to be to the second one", || second.peer.serving() == 2);
    let mut client = server.connect("disk");
    client.write(0, &[1; 4096]);
    assert_eq!(client.flush(), Ok(()));
    assert_eq!(second.durable(0, 4096), [1; 4096]);
    assert_eq!(first.peer.requests(), 0);
    server.stop().unwrap();
}

#[test]
fn answers_under_way_on_other_connections_are_awaited_when_one_breaks() {
    let mut calls = 0;
    let setup = Setup::new(SHARED, move |_| {
        calls += 1;
        match calls {
            // Still carried out when the next one breaks its connection.
            1 => Fault::Late(Duration::from_millis(500)),
            2 => CUT_BEFORE_CALL,
            _ => Fault::None,
        }
    });
    let server = Server::start(connecting(setup.dir.path(), &setup.socket(), 2));
    let mut client = server.connect("disk");
    client.send(request(Command::Write, 1, 0, 4096), &[1; 4096]);
    wait_until("the first write", || setup.peer.requests() == 1);
    client.send(request(Command::Write, 2, 8192, 4096), &[2; 4096]);
    for _ in 0..2 {
        assert!(client.receive().result.is_ok());
    }
    assert_eq!((setup.peer.cuts(), setup.peer.overlaps()), (1, 0));
    assert_eq!(client.flush(), Ok(()));
    assert_eq!(setup.durable(0, 4096), [1; 4096]);
    assert_eq!(setup.durable(8192, 4096), [2; 4096]);
    server.stop().unwrap();
}
