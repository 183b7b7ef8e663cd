//! A server on its own port, with clients, providers and machines that use only what the description of Compass CI's
//! interface has.

use crate::support::{Farm, PATIENCE, kill, trusting, wait_until};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Child;
use std::time::{Duration, Instant};
use tokio_tungstenite::tungstenite::{Message, WebSocket, client};

/// A scheduler of one test.
pub struct Lab {
    pub farm: Farm,
    server: Child,
    pub address: String,
    flags: Vec<String>,
    starts: u32,
}

impl Lab {
    pub fn open(flags: &[&str]) -> Lab {
        let farm = Farm::new();
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let (server, address) = launch(&farm, &flags, "127.0.0.1:0", 0);
        Lab { farm, server, address, flags, starts: 1 }
    }

    /// A scheduler with a directory of files, each of which holds its own path, and with these settings of `[compass]`.
    pub fn with_files(settings: &str, files: &[&str]) -> Lab {
        Lab::with_files_and_flags(settings, files, &[])
    }

    /// The same with flags.
    pub fn with_files_and_flags(settings: &str, files: &[&str], flags: &[&str]) -> Lab {
        let farm = Farm::new();
        let srv = farm.path().join("srv");
        std::fs::create_dir_all(&srv).unwrap();
        for file in files {
            let path = srv.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, file).unwrap();
        }
        let config = farm.path().join("compass.toml");
        let text = format!("[compass]\nsrv = {:?}\n{settings}\n", srv.display().to_string());
        std::fs::write(&config, text).unwrap();
        let config = config.display().to_string();
        let flags: Vec<String> =
            ["--config", &config].iter().chain(flags).map(|flag| (*flag).to_owned()).collect();
        let (server, address) = launch(&farm, &flags, "127.0.0.1:0", 0);
        Lab { farm, server, address, flags, starts: 1 }
    }

    /// Kills the server at once, and starts another on the same port.
    pub fn crash(&mut self) {
        self.kill();
        self.restart();
    }

    /// Starts another after a kill.
    pub fn restart(&mut self) {
        let (server, address) = launch(&self.farm, &self.flags, &self.address, self.starts);
        assert_eq!(address, self.address);
        (self.server, self.starts) = (server, self.starts + 1);
    }

    pub fn kill(&mut self) {
        self.server.kill().unwrap();
        self.server.wait().unwrap();
    }

    pub fn log(&self) -> String {
        let logs = (0..self.starts).map(|n| self.farm.work().join(format!("log{n}")));
        logs.map(|log| std::fs::read_to_string(log).unwrap_or_default()).collect()
    }

    /// The output of the command line against this server.
    pub fn windlass(&self, args: &[&str]) -> String {
        self.farm.ok(&[&["--server", &self.address], args].concat())
    }

    pub fn windlass_json(&self, args: &[&str]) -> Value {
        let text = self.windlass(&[args, &["-o", "json"]].concat());
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args:?}: {e}: {text}"))
    }

    /// Sends a request; returns the answer's status and body.
    pub fn ask(&self, method: &str, path: &str, headers: &str, body: &str) -> (u16, String) {
        let (status, head, body) = self.ask_bytes(method, path, headers, body.as_bytes());
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        let body = String::from_utf8_lossy(&body).into_owned();
        (status, if chunked { unchunked(&body) } else { body })
    }

    /// The same with bytes; returns the answer's status, head and body.
    pub fn ask_bytes(&self, method: &str, path: &str, headers: &str, body: &[u8]) -> (u16, String, Vec<u8>) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n{headers}Content-Length: {}\r\n\r\n",
            self.address,
            body.len()
        );
        stream.write_all(request.as_bytes()).unwrap();
        // A server that refuses a large body does not read all of it.
        _ = stream.write_all(body);
        let mut answer = Vec::new();
        _ = stream.read_to_end(&mut answer);
        if answer.starts_with(b"HTTP/1.1 100 ") {
            // The server may be asked to say first that it takes the body.
            let end = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap_or(0);
            answer.drain(..end + 4);
        }
        let end = answer.windows(4).position(|end| end == b"\r\n\r\n").unwrap_or(answer.len());
        let head = String::from_utf8_lossy(&answer[..end]).into_owned();
        let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        (status, head, answer.get(end + 4..).unwrap_or_default().to_vec())
    }

    pub fn get(&self, path: &str) -> (u16, String) {
        self.ask("GET", path, "", "")
    }

    pub fn post(&self, path: &str, body: &Value) -> (u16, String) {
        self.ask("POST", path, "Content-Type: application/json\r\n", &body.to_string())
    }

    /// Submits a job that is accepted; returns its id.
    pub fn submit(&self, job: &Value) -> String {
        let (status, body) = self.post("/scheduler/v1/jobs/submit", job);
        assert_eq!(status, 200, "{body}\n{}", self.log());
        let answer: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(answer[0]["job_state"], "submit");
        answer[0]["job_id"].as_str().unwrap().to_owned()
    }

    /// Submits a job that is refused; returns the status and the reason.
    pub fn refused(&self, job: &Value) -> (u16, String) {
        let (status, body) = self.post("/scheduler/v1/jobs/submit", job);
        assert_ne!(status, 200, "{body}");
        let message = serde_json::from_str::<Value>(&body).ok().and_then(|answer| {
            assert_eq!(answer[0]["job_id"], "0", "{body}");
            answer[0]["message"].as_str().map(str::to_owned)
        });
        (status, message.unwrap_or(body))
    }

    /// The public fields of a job.
    pub fn job(&self, id: &str) -> Value {
        let (status, body) = self.get(&format!("/scheduler/v1/jobs/{id}"));
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }

    /// Reports a job's progress as its own machine does.
    pub fn update(&self, id: &str, query: &str) -> (u16, String) {
        self.ask("POST", &format!("/scheduler/v1/jobs/{id}/update?{query}"), "", "")
    }

    pub fn wait_for(&self, id: &str, stage: &str) {
        let mut seen = Value::Null;
        let deadline = Instant::now() + PATIENCE;
        while seen["job_stage"] != stage {
            assert!(Instant::now() < deadline, "job {id} is not in stage {stage}: {seen}\n{}", self.log());
            seen = self.job(id);
        }
    }

    /// Waits until the job has that state.
    pub fn wait_for_state(&self, id: &str, state: &str) {
        wait_until(&format!("job {id} is {state}"), || {
            let job = self.windlass_json(&["job", "show", id]);
            let job = if job.is_array() { job[0].clone() } else { job };
            job["state"] == state
        });
    }

    /// Registers a bare-metal machine.
    pub fn register(&self, host: &Value) {
        let name = host["hostname"].as_str().unwrap();
        let (status, body) = self.post(&format!("/scheduler/v1/hosts/{name}"), host);
        assert_eq!(status, 200, "{body}");
    }

    /// The boot script of a machine.
    pub fn boot(&self, mac: &str) -> (u16, String) {
        self.get(&format!("/scheduler/v1/jobs/dispatch?mac={mac}&arch=aarch64&boot_type=ipxe"))
    }

    /// Opens a socket with JSON messages.
    pub fn socket(&self, path: &str) -> Socket {
        let stream = TcpStream::connect(&self.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let url = format!("ws://{}{path}", self.address);
        let (socket, _) = client(url, stream).unwrap();
        Socket { socket }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        kill(self.server.id() as i32, "KILL");
        _ = self.server.wait();
    }
}

fn launch(farm: &Farm, flags: &[String], listen: &str, number: u32) -> (Child, String) {
    let path = farm.work().join(format!("log{number}"));
    let log = std::fs::File::create(&path).unwrap();
    let mut command = farm.command(&["server", "start", "--no-worker", "--compass", "--listen", listen]);
    command.args(flags);
    if !flags.iter().any(|flag| flag == "--auth") {
        trusting(&mut command, farm);
    }
    let server = command.stderr(log).spawn().unwrap();
    let mut address = String::new();
    wait_until("the server listens", || {
        let log = std::fs::read_to_string(&path).unwrap_or_default();
        let line = log.split("windlass server listens on ").nth(1).and_then(|rest| rest.split_once(','));
        address =
            line.map(|(address, _)| address.trim_start_matches("http://").to_owned()).unwrap_or_default();
        !address.is_empty()
    });
    (server, address)
}

fn unchunked(mut body: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = body.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 || rest.len() < size {
            break;
        }
        whole.push_str(&rest[..size]);
        body = rest[size..].trim_start_matches("\r\n");
    }
    whole
}

pub struct Socket {
    socket: WebSocket<TcpStream>,
}

impl Socket {
    pub fn send(&mut self, message: &Value) {
        self.send_text(&message.to_string());
    }

    pub fn send_text(&mut self, text: &str) {
        self.socket.send(Message::text(text)).unwrap();
    }

    pub fn next(&mut self) -> Value {
        loop {
            match self.socket.read().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Close(_) => panic!("the server closed the socket"),
                _ => {}
            }
        }
    }

    /// The next message, if one comes within that time.
    pub fn within(&mut self, patience: Duration) -> Option<Value> {
        self.socket.get_ref().set_read_timeout(Some(patience)).unwrap();
        let message = loop {
            match self.socket.read() {
                Ok(Message::Text(text)) => break serde_json::from_str(&text).ok(),
                Ok(_) => {}
                Err(_) => break None,
            }
        };
        self.socket.get_ref().set_read_timeout(Some(PATIENCE)).unwrap();
        message
    }

    /// True once the server has closed it.
    pub fn is_closed(&mut self) -> bool {
        loop {
            match self.socket.read() {
                Ok(Message::Close(_)) | Err(_) => return true,
                Ok(_) => {}
            }
        }
    }
}

/// A provider of virtual machines and containers.
pub struct Provider {
    pub socket: Socket,
    pub request: Value,
}

impl Provider {
    /// Connects, and asks for work with these mebibytes free.
    pub fn open(lab: &Lab, host: &str, freemem: u64, more: &Value) -> Provider {
        let socket = lab.socket(&format!("/scheduler/v1/vm-container-provider/{host}"));
        let mut request = json!({
            "type": "host-job-request", "hostname": host, "arch": "aarch64", "nr_cpu": 64, "nr_node": 2,
            "nr_disks": 1, "nr_vm": 0, "nr_container": 0, "tbox_type": "vm,dc", "is_remote": false, "tags": [],
            "cache_dirs": [], "services": {}, "freemem": freemem, "disk_max_used_string": "9% /",
            "metrics": {"freemem": freemem, "freemem_percent": 50, "uptime_minutes": 100},
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            request[key] = value.clone();
        }
        let mut provider = Provider { socket, request };
        provider.ask();
        provider
    }

    /// Asks for work again.
    pub fn ask(&mut self) {
        self.socket.send(&self.request);
    }

    /// The next job that it must boot.
    pub fn boot(&mut self) -> Value {
        let message = self.socket.next();
        assert_eq!(message["type"], "boot-job", "{message}");
        message
    }

    /// The id of the next job that it must boot.
    pub fn boots(&mut self) -> String {
        self.boot()["job_id"].as_str().unwrap().to_owned()
    }

    /// Reports something about a job.
    pub fn says(&mut self, job: &str, more: &Value) {
        let mut message = json!({"type": "job-update", "job_id": job});
        for (key, value) in more.as_object().unwrap() {
            message[key] = value.clone();
        }
        self.socket.send(&message);
    }

    /// Reports that the job is done and its results are uploaded.
    pub fn done(&mut self, job: &str) {
        self.says(job, &json!({"job_data_readiness": "uploaded"}));
    }
}

/// A job for that testbox.
pub fn job(testbox: &str, more: &Value) -> Value {
    let mut job = json!({
        "suite": "iperf", "testbox": testbox, "os": "openeuler", "os_version": "22.03", "os_arch": "aarch64",
        "my_account": "ann", "my_email": "ann@example.org", "my_name": "Ann", "my_token": "secret-token",
        "docker_image": "openeuler:22.03", "runtime": 300,
        "kernel_uri": "http://os/vmlinuz", "initrds_uri": ["http://os/initrd.cgz"], "kernel_params": ["user=lkp"],
    });
    for (key, value) in more.as_object().into_iter().flatten() {
        job[key] = value.clone();
    }
    job
}

/// The same for an account.
pub fn job_of(account: &str, testbox: &str, more: &Value) -> Value {
    let mut job = job(testbox, more);
    job["my_account"] = account.into();
    job
}
