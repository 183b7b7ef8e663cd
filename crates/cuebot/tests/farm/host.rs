//! A host as the farm hears it: what RQD reports.

use super::{Client, Farm};
use prost::Message;
use tonic::Status;
use windlass_cuebot::generated::report::{
    BootReport, FrameCompleteReport, HostReport, RenderHost, RqdReportRqdStartupRequest,
    RqdReportRqdStartupResponse, RqdReportRunningFrameCompletionRequest,
    RqdReportRunningFrameCompletionResponse, RqdReportStatusRequest, RqdReportStatusResponse,
    RunningFrameInfo,
};

const SERVICE: &str = "report.RqdReportInterface";

/// A host that reports.
#[derive(Clone)]
pub struct Host(Client);

impl Host {
    pub async fn connect(farm: &Farm) -> Host {
        Host(Client::connect(farm).await)
    }

    pub async fn call<Q, A>(&self, path: &str, ask: Q) -> Result<A, Status>
    where
        Q: Message + Default + 'static,
        A: Message + Default + 'static,
    {
        self.0.call(path, ask).await
    }

    pub async fn boot(&self, name: &str) {
        self.try_boot(name).await.unwrap();
    }

    pub async fn try_boot(&self, name: &str) -> Result<(), Status> {
        self.boot_as(host(name)).await
    }

    pub async fn boot_as(&self, host: RenderHost) -> Result<(), Status> {
        let report = BootReport { host: Some(host), core_info: None };
        let ask = RqdReportRqdStartupRequest { boot_report: Some(report) };
        let _: RqdReportRqdStartupResponse = self.call(&format!("{SERVICE}/ReportRqdStartup"), ask).await?;
        Ok(())
    }

    pub async fn status(&self, host: RenderHost, frames: Vec<RunningFrameInfo>) -> Result<(), Status> {
        let report = HostReport { host: Some(host), frames, core_info: None };
        let ask = RqdReportStatusRequest { host_report: Some(report) };
        let _: RqdReportStatusResponse = self.call(&format!("{SERVICE}/ReportStatus"), ask).await?;
        Ok(())
    }

    pub async fn ended(&self, frame: &str, proc: &str, exit_status: i32) {
        self.try_ended("h1", (frame, proc), exit_status).await.unwrap();
    }

    pub async fn try_ended(
        &self,
        name: &str,
        (frame, proc): (&str, &str),
        exit_status: i32,
    ) -> Result<(), Status> {
        let run = RunningFrameInfo {
            resource_id: proc.to_owned(),
            frame_id: frame.to_owned(),
            max_rss: 1000,
            ..RunningFrameInfo::default()
        };
        let report = FrameCompleteReport {
            host: Some(host(name)),
            frame: Some(run),
            exit_status,
            exit_signal: 0,
            run_time: 1,
        };
        let ask = RqdReportRunningFrameCompletionRequest { frame_complete_report: Some(report) };
        let path = format!("{SERVICE}/ReportRunningFrameCompletion");
        let _: RqdReportRunningFrameCompletionResponse = self.call(&path, ask).await?;
        Ok(())
    }
}

/// What a host of 4 cores says of itself.
pub fn host(name: &str) -> RenderHost {
    RenderHost {
        name: name.to_owned(),
        num_procs: 4,
        cores_per_proc: 100,
        total_mem: 8 << 20,
        free_mem: 7 << 20,
        boot_time: 1_700_000_000,
        tags: vec!["linux".to_owned()],
        ..RenderHost::default()
    }
}

/// A frame of one core that a host says it runs in a proc.
pub fn run(frame: &str, proc_id: &str) -> RunningFrameInfo {
    RunningFrameInfo {
        resource_id: proc_id.to_owned(),
        frame_id: frame.to_owned(),
        num_cores: 100,
        rss: 1_000,
        max_rss: 1_000,
        ..RunningFrameInfo::default()
    }
}
