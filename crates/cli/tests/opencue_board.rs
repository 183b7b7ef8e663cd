//! The board of `windlass gateway opencue`: its door as a process has it, and the views of a farm in Chromium.

use crate::site::{Site, free_port, gateway, start_until};
use crate::support::browser::Browser;
use crate::support::port::KillOnDrop;
use crate::support::{show, tools, wait_until};
use std::path::PathBuf;
use std::process::{Command, Stdio};

const TOKEN: &str = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
/// A job of 5,000 frames, and 100 hosts that have room for all of them. Nothing runs there: the gateway only books.
const FARM: &str = "
INSERT INTO facility (pk_facility, str_name, b_default) VALUES ('FAC', 'local', true);
INSERT INTO dept (pk_dept, str_name, b_default) VALUES ('DEPT', 'unknown', true);
INSERT INTO alloc (pk_alloc, str_name, str_tag, pk_facility, b_default)
    VALUES ('ALLOC', 'local.general', 'general', 'FAC', true);
INSERT INTO show (pk_show, str_name, b_scheduler_managed) VALUES ('SHOW', 'testing', true);
INSERT INTO subscription (pk_subscription, pk_alloc, pk_show, int_size, int_burst)
    VALUES ('SUB', 'ALLOC', 'SHOW', 1000000, 1000000);
INSERT INTO folder (pk_folder, pk_show, str_name, pk_dept, b_default)
    VALUES ('FOLDER', 'SHOW', 'testing', 'DEPT', true);
INSERT INTO point (pk_point, pk_dept, pk_show) VALUES ('POINT', 'DEPT', 'SHOW');
INSERT INTO host (pk_host, pk_alloc, str_name, str_lock_state, int_cores, int_cores_idle, int_mem, int_mem_idle)
    SELECT 'host' || n, 'ALLOC', 'render' || n, 'OPEN', 6400, 6400, 134217728, 134217728
    FROM generate_series(101, 200) n;
INSERT INTO host_stat (pk_host_stat, pk_host, int_mem_total, int_mem_free) SELECT pk_host, pk_host, int_mem, int_mem
    FROM host;
INSERT INTO host_tag (pk_host_tag, pk_host, str_tag, str_tag_type) SELECT pk_host, pk_host, 'general', 'ALLOC' FROM host;
INSERT INTO job (pk_job, pk_folder, pk_show, pk_facility, pk_dept, str_name, str_visible_name, str_shot, str_user,
    str_state, int_frame_count, int_layer_count)
    VALUES ('J', 'FOLDER', 'SHOW', 'FAC', 'DEPT', 'testing-s-ann_film', 'testing-s-ann_film', 's', 'ann', 'PENDING',
        5000, 1);
UPDATE job_resource SET int_max_cores = 1000000;
INSERT INTO layer (pk_layer, pk_job, str_name, str_cmd, str_range, str_type, str_tags, int_mem_min, b_threadable)
    VALUES ('L', 'J', 'beauty', 'true', '1-5000', 'Render', 'general', 262144, false);
INSERT INTO frame (pk_frame, pk_layer, pk_job, str_name, str_state, int_number, int_layer_order)
    SELECT 'f' || n, 'L', 'J', to_char(n, 'FM0000') || '-beauty', 'WAITING', n, n FROM generate_series(1, 5000) n;
UPDATE layer_stat SET int_waiting_count = 5000, int_total_count = 5000;
UPDATE job_stat SET int_waiting_count = 5000";

impl Site {
    /// A config file of a gateway that books and does not launch, with these settings of its board.
    fn board_config(&self, board: &str) -> PathBuf {
        self.config(&format!(
            "rqd: {{dry_run_mode: true}}\nhost_cache: {{host_staleness_threshold: 3h}}\nwindlass: {{board: {board}}}"
        ))
    }

    fn gateway(&self, board: &str) -> Command {
        let mut command = gateway(&self.board_config(board));
        command.stdout(Stdio::null());
        command
    }

    /// Starts one, and waits until it says where its board is.
    fn start_board(&self, board: &str) -> KillOnDrop {
        start_until(&self.board_config(board), "the board: http://")
    }

    fn token_file(&self, token: &str) -> PathBuf {
        let path = self.dir.path().join("token");
        std::fs::write(&path, format!("{token}\n")).unwrap();
        path
    }
}

#[test]
fn the_board_is_open_to_this_machine_alone_or_to_those_who_show_the_token() {
    let Some(site) = Site::new(&[FARM]) else { return };
    let port = free_port();
    let running = site.start_board(&format!("{{listen: {port}}}"));
    let browser = Browser::new(&format!("127.0.0.1:{port}"));
    for path in ["/", "/jobs/J", "/jobs/J/why", "/queues", "/workers/render101"] {
        let page = browser.ask("GET", path, &[], "");
        assert_eq!((page.status, page.header("content-type")), (200, "text/html; charset=utf-8"), "{path}");
        assert!(page.header("content-security-policy").starts_with("default-src 'none'; script-src 'self'"));
    }
    let me = browser.get("/api/v1/board/me");
    assert_eq!((me.status, me.header("cache-control")), (200, "no-store"));
    assert_eq!(me.json()["farm"], "opencue");
    assert_eq!(me.json()["signed_in_by"], "none");
    wait_until("the overview has all frames", || {
        let farm = browser.get("/api/v1/opencue/overview").json();
        farm["frames"]["running"] == 5_000 && farm["scheduler"]["last_pass"]["booked"].is_number()
    });
    let foreign = browser.ask("GET", "/api/v1/opencue/jobs", &[("Host", "evil.example")], "");
    assert_eq!(foreign.status, 403, "{}", foreign.text());
    drop(running);

    let file = site.token_file(TOKEN);
    let settings = format!("{{listen: '0.0.0.0:{port}', token_file: '{}'}}", file.display());
    let running = site.start_board(&settings);
    let mut browser = Browser::new(&format!("127.0.0.1:{port}"));
    assert_eq!(browser.get("/api/v1/opencue/jobs").status, 401);
    assert_eq!(browser.sign_in("token", "wrong").status, 401);
    assert_eq!(browser.sign_in("token", TOKEN).status, 204);
    let jobs = browser.get("/api/v1/opencue/jobs").json();
    assert_eq!(jobs["items"][0]["name"], "testing-s-ann_film");
    assert_eq!(browser.change("DELETE", "/api/v1/board/session", "").status, 204);
    assert_eq!(browser.get("/api/v1/opencue/jobs").status, 401);
    drop(running);
}

#[test]
fn a_board_that_others_could_open_is_refused() {
    let Some(site) = Site::new(&[FARM]) else { return };
    let fails = |board: &str| {
        let output = site.gateway(board).output().unwrap();
        assert!(!output.status.success(), "{board}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = fails("{listen: '0.0.0.0:0'}");
    assert!(said.contains("can be reached from other machines, and needs a token file"), "{said}");
    assert!(said.contains("windlass.board.token_file"), "{said}");
    let said = fails("{listen: 0, token_file: /nonexistent/token}");
    assert!(said.contains("the board's token file /nonexistent/token cannot be read"), "{said}");
    let file = site.token_file("too short");
    let said = fails(&format!("{{listen: 0, token_file: '{}'}}", file.display()));
    assert!(said.contains("shorter than 32 characters") && said.contains("openssl rand -hex 32"), "{said}");
    let said = fails("{listen: here}");
    let why = "windlass.board.listen = \"here\": this must be ADDRESS:PORT, or a port";
    assert!(said.contains(why), "{said}");
}

/// Artists see frames begin to run, and find out by links why one is where it is. No page shows an error, or a serious
/// fault of accessibility, light or dark, small or large.
#[test]
fn a_person_sees_the_farm_in_a_browser() {
    let Some(board) = tools::of_board("the board of OpenCue in a browser") else { return };
    let Some(site) = Site::new(&[FARM]) else { return };
    let port = free_port();
    let file = site.token_file(TOKEN);
    let running = site.start_board(&format!("{{listen: {port}, token_file: '{}'}}", file.display()));
    let output = Command::new("node")
        .arg("e2e/opencue.mjs")
        .current_dir(board)
        .env("BASE", format!("http://127.0.0.1:{port}"))
        .env("TOKEN", TOKEN)
        .env("JOB", "J")
        .env("JOB_NAME", "testing-s-ann_film")
        .env("LAYER", "beauty")
        .env("FRAME", "0001-beauty")
        .env("FRAMES", "5000")
        .env("HOST", "render101")
        .env("SHOW", "testing")
        .output()
        .unwrap();
    drop(running);
    let said = show(&output);
    assert!(output.status.success(), "{said}");
    assert!(said.contains("all passed") && said.matches("ok     ").count() >= 10, "{said}");
}
