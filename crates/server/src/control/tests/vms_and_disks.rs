//! Addition, removal and resizing of VMs and disks, their persistence, and admission.

use super::*;

#[tokio::test]
async fn put_creates_updates_or_lists_conflicts() {
    let plane = Pretended::new();
    let new = json!({
        "device": "disk1",
        "objective": { "limit": "500 IOPS" },
        "disk": [{ "size": "2 GiB" }, { "export": "new-logs", "size": "1 GiB" }],
    });
    let path = "/v1/vms/new";
    let put = async |body: &Value| ask(&plane, "PUT", path, &body.to_string()).await;
    let (status, vm) = put(&new).await;
    assert_eq!(status, StatusCode::CREATED, "{vm}");
    assert_eq!(
        (&vm["device"], &vm["objective"]["limit"]["total"]),
        (&json!("disk1"), &json!("500 IOPS"))
    );
    assert_eq!(vm["disks"][1]["export"], "new-logs");
    let (status, again) = put(&new).await;
    assert_eq!((status, again), (StatusCode::OK, vm.clone()));
    // A PUT of an existing VM replaces the whole objective.
    let mut other = new.clone();
    other["objective"] = json!({ "weight": 7 });
    let (status, changed) = put(&other).await;
    assert_eq!(status, StatusCode::OK, "{changed}");
    assert_eq!(changed["objective"]["weight"], 7);
    assert_eq!(changed["objective"]["limit"], Value::Null);

    // The maximum number of connections is changed in the same way.
    assert_eq!(changed["max_connections"], 64);
    other["max_connections"] = json!(200);
    let (status, changed) = put(&other).await;
    assert_eq!(
        (status, &changed["max_connections"]),
        (StatusCode::OK, &json!(200))
    );
    assert_eq!(changed["objective"]["weight"], 7);

    let differs = json!({
        "device": "disk0",
        "background": true,
        "disk": [{ "size": "3 GiB", "block_size": "4 KiB" }, { "export": "x", "size": "1 GiB" }],
    });
    let (status, refused) = put(&differs).await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    let also = refused["also"].as_array().expect("a list");
    let conflicts: Vec<&str> = also.iter().filter_map(|p| p["what"].as_str()).collect();
    let expected = [
        "device is \"disk1\", not \"disk0\"",
        "background is \"false\", not \"true\"",
        "disk \"new\": block_size is \"512\", not \"4096\"",
        "disk \"new\": size is \"2 GiB\", not \"3 GiB\"",
        "it has no disk with the export name \"x\"",
        "it has another disk, with the export name \"new-logs\"",
    ];
    assert_eq!(conflicts, expected);
    let (_, same) = ask(&plane, "GET", path, "").await;
    assert_eq!(same, changed);

    let (status, removed) = ask(&plane, "DELETE", "/v1/vms/new?force=true", "").await;
    assert_eq!(status, StatusCode::OK, "{removed}");
    assert_eq!(removed["removed"], "new");
    assert_eq!(removed["not_flushed"].as_array().map(Vec::len), Some(1));
    let (status, _) = ask(&plane, "DELETE", "/v1/vms/new?force=true", "").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn persist_stores_the_vm_or_fails_the_request() {
    let plane = Pretended::new();
    let stored = || -> BTreeSet<String> {
        let stored = plane.stored.lock().expect("no test thread has panicked");
        stored.keys().cloned().collect()
    };
    let new = "{\"device\": \"disk0\", \"disk\": [{\"size\": \"1 GiB\"}]}";
    let put = async |path: &str| ask(&plane, "PUT", path, new).await.0;
    assert_eq!(put("/v1/vms/brief").await, StatusCode::CREATED);
    assert!(stored().is_empty());
    // The request is repeated, this time with persist.
    assert_eq!(put("/v1/vms/brief?persist=true").await, StatusCode::OK);
    assert_eq!(put("/v1/vms/long?persist=true").await, StatusCode::CREATED);
    assert_eq!(stored(), ["brief", "long"].map(str::to_owned).into());
    let unstorable = format!("/v1/vms/{}", simulated_daemon::NAME_THAT_CANNOT_BE_STORED);
    let status = put(&format!("{unstorable}?persist=true")).await;
    assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR);
    let (status, _) = ask(&plane, "GET", &unstorable, "").await;
    assert_eq!(status, StatusCode::NOT_FOUND, "it is there all the same");

    let delete = async |path: &str| ask(&plane, "DELETE", path, "").await;
    let (status, _) = delete("/v1/vms/brief?persist=true&force=true").await;
    assert_eq!((status, stored().len()), (StatusCode::OK, 1));
    // Without persist the record stays; a second removal then deletes the record alone.
    let (status, _) = delete("/v1/vms/long?force=true").await;
    assert_eq!((status, stored().len()), (StatusCode::OK, 1));
    let (status, _) = delete("/v1/vms/long?persist=true").await;
    assert_eq!((status, stored().len()), (StatusCode::OK, 0));
    let (status, _) = delete("/v1/vms/long?persist=true").await;
    assert_eq!(status, StatusCode::NOT_FOUND);

    // A VM of the configuration file.
    let (status, refused) = delete("/v1/vms/oltp?persist=true&force=true").await;
    assert_eq!(status, StatusCode::CONFLICT, "{refused}");
    let allowed = refused["error"]["allowed"].as_str().expect("text");
    assert!(allowed.contains("from the configuration"), "{refused}");
    let size = "{\"size\": \"2 GiB\"}";
    let disk = "/v1/vms/oltp/disks/oltp?persist=true";
    let (status, _) = ask(&plane, "PATCH", disk, size).await;
    assert_eq!(status, StatusCode::CONFLICT);
    let objective = "/v1/vms/oltp/objective?persist=true";
    let (status, _) = ask(&plane, "PATCH", objective, "{\"weight\": 7}").await;
    assert_eq!(
        (status, stored()),
        (StatusCode::OK, ["oltp".to_owned()].into())
    );
}

#[tokio::test]
async fn deleting_a_missing_disk_changes_only_its_record() {
    let plane = Pretended::new();
    let stored = || {
        plane
            .stored
            .lock()
            .expect("no test thread has panicked")
            .clone()
    };
    let new = "{\"device\": \"disk0\", \"disk\": [{\"size\": \"1 GiB\"}]}";
    let put = async |path: &str, body: &str| ask(&plane, "PUT", path, body).await.0;
    let delete = async |path: &str| ask(&plane, "DELETE", path, "").await.0;
    assert_eq!(put("/v1/vms/brief", new).await, StatusCode::CREATED);
    let misspelt = "/v1/vms/brief/disks/breif?persist=true";
    assert_eq!(delete(misspelt).await, StatusCode::NOT_FOUND);
    assert_eq!(stored(), BTreeMap::new());

    // Removed until the next start, and then for good.
    assert_eq!(
        put("/v1/vms/long?persist=true", new).await,
        StatusCode::CREATED
    );
    let logs = "/v1/vms/long/disks/logs";
    let disk = "{\"size\": \"1 GiB\"}";
    assert_eq!(
        put(&format!("{logs}?persist=true"), disk).await,
        StatusCode::CREATED
    );
    assert_eq!(delete(logs).await, StatusCode::OK);
    assert_eq!(stored()["long"].len(), 2);
    let for_good = format!("{logs}?persist=true");
    assert_eq!(delete(&for_good).await, StatusCode::OK);
    assert_eq!(stored()["long"], ["long".to_owned()].into());
    assert_eq!(delete(&for_good).await, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn disks_are_put_resized_and_removed_by_themselves() {
    let plane = Pretended::new();
    let path = "/v1/vms/oltp/disks/logs";
    for expected in [StatusCode::CREATED, StatusCode::OK] {
        let (status, vm) = ask(&plane, "PUT", path, "{\"size\": \"2 GiB\"}").await;
        assert_eq!(
            (status, vm["disks"].as_array().map(Vec::len)),
            (expected, Some(2))
        );
    }
    let (status, refused) = ask(&plane, "PUT", path, "{\"size\": \"3 GiB\"}").await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(refused["also"][0]["allowed"], "PATCH the disk's size");
    let limited = "{\"size\": \"2 GiB\", \"limit\": \"9 IOPS\"}";
    let (status, refused) = ask(&plane, "PUT", path, limited).await;
    assert_eq!(status, StatusCode::CONFLICT);
    assert_eq!(refused["also"][0]["allowed"], "PATCH the disk's limits");
    for _ in 0..2 {
        let (status, vm) = ask(&plane, "PATCH", path, "{\"size\": \"3 GiB\"}").await;
        assert_eq!(
            (status, &vm["disks"][1]["size_bytes"]),
            (StatusCode::OK, &json!(3u64 << 30))
        );
    }
    let shrink = "/v1/vms/oltp/disks/oltp?force=true";
    let (status, vm) = ask(&plane, "PATCH", shrink, "{\"size\": \"1 MiB\"}").await;
    assert_eq!(
        (status, &vm["disks"][0]["size_bytes"]),
        (StatusCode::OK, &json!(1 << 20))
    );
    let (status, removed) = ask(&plane, "DELETE", path, "").await;
    assert_eq!(
        (status, &removed["removed"]),
        (StatusCode::OK, &json!("logs"))
    );
    let (status, _) = ask(&plane, "DELETE", path, "").await;
    assert_eq!(status, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_resize_says_while_the_configuration_has_another_size() {
    let plane = Pretended::new();
    let path = "/v1/vms/oltp/disks/oltp?force=true";
    let mut sizes = Vec::new();
    // The configuration has 1 GiB, whatever the disk was resized to before.
    for size in ["2 GiB", "2 GiB", "1536 MiB", "1 GiB"] {
        let body = format!("{{\"size\": \"{size}\"}}");
        let (status, vm) = ask(&plane, "PATCH", path, &body).await;
        assert_eq!(status, StatusCode::OK, "{vm}");
        let notes = vm["notes"].as_array().cloned().unwrap_or_default();
        sizes.push(
            notes
                .iter()
                .filter_map(|note| note.as_str())
                .collect::<String>(),
        );
    }
    for (note, size) in sizes.iter().zip(["2 GiB", "2 GiB", "1536 MiB"]) {
        assert!(note.contains(&format!("set size = \"{size}\"")), "{note}");
        assert!(note.contains("still says 1 GiB"), "{note}");
        assert!(note.contains("next start"), "{note}");
    }
    assert_eq!(sizes[3], "", "nothing is left to change");

    let persist = "/v1/vms/oltp/disks/oltp?persist=true";
    let (status, refused) = ask(&plane, "PATCH", persist, "{\"size\": \"2 GiB\"}").await;
    assert_eq!(status, StatusCode::CONFLICT);
    let allowed = refused["error"]["allowed"].as_str().expect("text");
    assert!(allowed.contains("set size = \"2 GiB\" there"), "{allowed}");
}

#[tokio::test]
async fn unsynced_shrink_fails_again_when_repeated() {
    let plane = Pretended::new();
    let shrink = "/v1/vms/oltp/disks/oltp?force=true";
    let size = format!("{{\"size\": \"{} MiB\"}}", simulated_daemon::UNSYNCED >> 20);
    for _ in 0..2 {
        let (status, refused) = ask(&plane, "PATCH", shrink, &size).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{refused}");
        assert_eq!(refused["error"]["what"], simulated_daemon::NOT_DURABLE);
        let (_, vm) = ask(&plane, "GET", "/v1/vms/oltp", "").await;
        assert_eq!(vm["disks"][0]["size_bytes"], simulated_daemon::UNSYNCED);
    }
}

#[test]
fn relative_and_absolute_paths_are_equal() {
    let now = snapshot("disk0", &["new"]).vms.remove(0);
    let mut old = pretended_vm("new", 0, Objective::default()).disks.remove(0);
    let mut asked = old.clone();
    asked.path = Some("somewhere/new.raw".into());
    old.path = std::path::absolute("somewhere/new.raw").ok();
    assert!(put_conflicts::disk_differences(&old, &now, &asked).is_empty());
    asked.path = Some("elsewhere/new.raw".into());
    assert_eq!(put_conflicts::disk_differences(&old, &now, &asked).len(), 1);
}

#[tokio::test]
async fn objective_beyond_the_device_is_refused_unless_forced() {
    let mut plane = Pretended::new();
    async fn set(plane: &Pretended, rate: &str, query: &str) -> (StatusCode, Value) {
        let path = format!("/v1/vms/bulk/objective{query}");
        let body = format!("{{\"reservation\": \"{rate}\"}}");
        ask(plane, "PATCH", &path, &body).await
    }
    // Without a profile everything is admitted.
    let (status, _) = set(&plane, "100000 IOPS", "").await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = set(&plane, "none", "").await;
    assert_eq!(status, StatusCode::OK);

    let curve = || Curve::new(&[(4096, 1000.0), (1 << 20, 1000.0)]).expect("a curve");
    let profile = Profile::new([curve(), curve()], None, Vec::new(), Vec::new());
    plane.profile = Some(Arc::new(profile));
    // 120 IOPS are reserved for another VM.
    let (status, refused) = set(&plane, "700 IOPS", "").await;
    assert_eq!(status, StatusCode::CONFLICT);
    let error = &refused["error"];
    assert_eq!(
        error["what"],
        "does not fit: the promises need 82 % of the device's time, of which at most 80 % may be \
         promised; VM bulk alone needs 70 %"
    );
    assert_eq!(
        error["allowed"],
        "the nearest that fits: reservation = \"680 IOPS\"; or ?force=true, to set it anyway"
    );
    let (_, vm) = ask(&plane, "GET", "/v1/vms/bulk", "").await;
    assert_eq!(vm["objective"]["reservation"], Value::Null);
    let (status, _) = set(&plane, "680 IOPS", "").await;
    assert_eq!(status, StatusCode::OK);

    let (status, forced) = set(&plane, "900 IOPS", "?force=true").await;
    assert_eq!(status, StatusCode::OK);
    assert_eq!(forced["objective"]["reservation"], "900 IOPS");
    // The device is overcommitted now: a smaller reservation is admitted, a larger one is not, and
    // other changes are not affected.
    let (status, _) = set(&plane, "800 IOPS", "").await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = set(&plane, "801 IOPS", "").await;
    assert_eq!(status, StatusCode::CONFLICT);
    let (status, _) = ask(&plane, "PATCH", "/v1/vms/oltp/objective", "{\"weight\": 7}").await;
    assert_eq!(status, StatusCode::OK);
    let (status, _) = set(&plane, "1 IOPS", "?forse=true").await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn known_disk_is_forgotten_by_its_export_name() {
    let plane = Pretended::new();
    let (status, body) = ask(&plane, "DELETE", "/v1/disks/lost/known", "").await;
    assert_eq!((status, &body["removed"]), (StatusCode::OK, &json!("lost")));
    let (status, body) = ask(&plane, "DELETE", "/v1/disks/other/known", "").await;
    assert_eq!(status, StatusCode::NOT_FOUND, "{body}");
}

#[tokio::test]
async fn memory_disk_larger_than_ram_gets_a_note() {
    let plane = Pretended::new();
    let new =
        |size: &str| format!("{{\"device\": \"disk0\", \"disk\": [{{\"size\": \"{size}\"}}]}}");
    let (status, vm) = ask(&plane, "PUT", "/v1/vms/small", &new("1 GiB")).await;
    assert_eq!((status, &vm["notes"]), (StatusCode::CREATED, &Value::Null));
    let (status, vm) = ask(&plane, "PUT", "/v1/vms/large", &new("512 TiB")).await;
    assert_eq!(status, StatusCode::CREATED, "{vm}");
    let note = vm["notes"][0].as_str().expect("a note");
    assert!(note.contains("of memory: once guests"), "{note}");
}
