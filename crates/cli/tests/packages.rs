//! The Debian packages, installed, upgraded, removed and purged in a throw-away copy of this machine: an overlay over its
//! root directory, in a mount namespace of its own. Nothing outside of it changes.

use crate::support::{self, Farm, show, windlass};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn packaging(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(file)
}

/// What this machine lacks for the test, if it lacks anything.
fn lacks() -> Option<&'static str> {
    let programs =
        ["dpkg", "dpkg-deb", "unshare", "mount", "chroot", "objcopy", "systemd-sysusers", "systemd-analyze"];
    let has =
        |program: &&&str| !Command::new(program).arg("--version").output().is_ok_and(|o| o.status.success());
    if let Some(program) = programs.iter().find(has) {
        return Some(program);
    }
    let script = "t=$(mktemp -d) && mount -t tmpfs none $t && mkdir $t/u $t/w $t/m && \
                  mount -t overlay -o lowerdir=/,upperdir=$t/u,workdir=$t/w none $t/m";
    let tried = Command::new("unshare").args(["--mount", "sh", "-c", script]).output().unwrap();
    (!tried.status.success()).then_some("an overlay over / (in a container without rights, for example)")
}

/// The packages, made of the program under test.
fn make(farm: &Farm) -> PathBuf {
    let out = farm.work().join("debs");
    let made =
        Command::new(packaging("deb")).arg(windlass()).arg(&out).env("DEB_COMPRESSION", "none").output();
    let made = made.unwrap();
    assert!(made.status.success(), "{}", show(&made));
    out
}

/// Runs a script as root of the copy. What it makes is listed in `changed`, and is gone afterwards.
fn in_a_copy(farm: &Farm, script: &str) -> (Output, Vec<String>) {
    let (inner, outer) = (farm.work().join("inner.sh"), farm.work().join("outer.sh"));
    std::fs::write(&inner, script).unwrap();
    std::fs::write(&outer, COPY).unwrap();
    let output = Command::new("unshare")
        .args(["--mount", "--pid", "--fork", "bash"])
        .args([&outer, &farm.work()])
        .output()
        .unwrap();
    let changed = std::fs::read_to_string(farm.work().join("changed")).unwrap_or_default();
    (output, changed.lines().map(str::to_owned).collect())
}

/// $1 is the test's directory, which the copy has at /mnt.
const COPY: &str = r#"
set -e
top=$1/top
mkdir -p $top
mount -t tmpfs none $top
mkdir $top/u $top/w $top/m
mount -t overlay -o lowerdir=/,upperdir=$top/u,workdir=$top/w none $top/m
mount --bind /dev $top/m/dev
mount -t proc none $top/m/proc
mount --bind $1 $top/m/mnt
chroot $top/m bash -e /mnt/inner.sh
umount $top/m/mnt
# Devices with number 0 stand for files that were deleted.
cd $top/u && find . \( -type d -name '*windlass*' \) -o \( ! -type d ! -type c \) | sort >$1/changed
"#;

/// What may change in a machine on which packages were installed and purged.
fn is_of_the_system(path: &str) -> bool {
    let own = ["./var/lib/dpkg/", "./var/log/", "./var/cache/", "./run/", "./tmp/", "./etc/.pwd.lock"];
    let users = ["./etc/passwd", "./etc/group", "./etc/shadow", "./etc/gshadow"];
    own.iter().any(|own| path.starts_with(own))
        || users.iter().any(|file| path.trim_end_matches('-') == *file)
}

/// The life of the packages on one machine. Each line that begins with `--` says what the next lines show.
const LIFE: &str = r#"
exec 2>&1
export DEBIAN_FRONTEND=noninteractive PATH=/usr/sbin:/usr/bin:/sbin:/bin
install() { dpkg --force-depends --force-confold --install /mnt/debs/*.deb >/tmp/dpkg.log || { cat /tmp/dpkg.log; exit 1; }; }
echo "-- install"
install
windlass --version
stat -c '%a %U %n' /usr/bin/windlass /etc/windlass/server.toml /etc/windlass/server.env /etc/windlass/worker.env
test -s /usr/share/man/man1/windlass-run.1.gz
zcat /usr/share/man/man1/windlass-run.1.gz | head -n 3
bash -n /usr/share/bash-completion/completions/windlass
grep -q '#compdef windlass' /usr/share/zsh/vendor-completions/_windlass
test -s /usr/share/fish/vendor_completions.d/windlass.fish
getent passwd windlass | cut -d : -f 6
dpkg --verify windlass windlass-server windlass-worker
for unit in server worker sccache opencue; do
    systemd-analyze verify --man=no /usr/lib/systemd/system/windlass-$unit.service 2>&1 | grep windlass- | grep -v DelegateSubgroup || true
done
su -s /bin/sh -c 'WINDLASS_STATE=$(mktemp -d) windlass run --foreground -- echo it runs' nobody
echo "-- an upgrade keeps what was edited"
echo '# edited' >>/etc/windlass/server.toml
echo '# edited' >>/etc/windlass/worker.env
install
tail -qn 1 /etc/windlass/server.toml /etc/windlass/worker.env
stat -c '%a' /etc/windlass/worker.env
echo "-- removal keeps settings and data"
mkdir -p /var/lib/windlass /var/lib/windlass-worker
touch /var/lib/windlass/windlass.db /var/lib/windlass-worker/keeper.json
touch /etc/windlass/ca.pem /etc/windlass/tls/server.key /etc/windlass/worker.token
dpkg --remove windlass-worker windlass-server windlass >/dev/null
ls /etc/windlass /var/lib/windlass
ls /usr/bin/windlass || true
echo "-- purge of one package leaves what is another's"
dpkg --purge windlass >/dev/null
(cd /etc/windlass && find . -type f | sort)
echo "-- purge leaves nothing"
dpkg --purge windlass-worker windlass-server >/dev/null
ls -d /etc/windlass /var/lib/windlass* || true
rm -f /tmp/dpkg.log
"#;

#[test]
fn packages_are_installed_upgraded_and_purged() {
    if !support::is_root("packages") {
        return;
    }
    if let Some(what) = lacks() {
        println!("SKIP packages: this machine lacks {what}");
        return;
    }
    let farm = Farm::new();
    make(&farm);
    let (output, changed) = in_a_copy(&farm, LIFE);
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{}", show(&output));
    let part = |head: &str| said.split("-- ").find(|part| part.starts_with(head)).unwrap().to_owned();
    let installed = part("install");
    for expected in [
        "755 root /usr/bin/windlass",
        "644 root /etc/windlass/server.toml",
        "600 root /etc/windlass/server.env",
        "600 root /etc/windlass/worker.env",
        ".TH windlass-run 1",
        "/var/lib/windlass",
        "it runs",
    ] {
        assert!(installed.contains(expected), "{expected}: {said}");
    }
    assert!(!installed.contains(".service:"), "systemd does not accept a unit: {said}");
    assert_eq!(part("an upgrade").lines().skip(1).collect::<Vec<_>>(), ["# edited", "# edited", "600"]);
    let removed = part("removal");
    assert!(removed.contains("server.toml") && removed.contains("windlass.db"), "{said}");
    assert!(removed.contains("cannot access '/usr/bin/windlass'"), "{said}");
    assert_eq!(
        part("purge of one").lines().skip(1).collect::<Vec<_>>(),
        ["./server.env", "./server.toml", "./tls/server.key", "./worker.env", "./worker.token"],
        "{said}"
    );
    let left: Vec<&String> = changed.iter().filter(|path| !is_of_the_system(path)).collect();
    assert!(left.is_empty() && !changed.is_empty(), "{left:#?}\n{said}");
}

/// The units of what runs no tasks let it do as little as systemd can see to. 20 is an exposure of 2.0 of 10.
#[test]
fn the_units_of_servers_and_gateways_expose_little() {
    let units = ["server", "sccache", "opencue"];
    let analysed = Command::new("systemd-analyze")
        .args(["security", "--offline=true", "--threshold=20"])
        .args(units.map(|unit| packaging(&format!("systemd/windlass-{unit}.service"))))
        .output();
    let Ok(analysed) = analysed else {
        println!("SKIP packages: there is no systemd-analyze");
        return;
    };
    let said = String::from_utf8_lossy(&analysed.stderr);
    if said.contains("unrecognized option") {
        println!("SKIP packages: systemd-analyze knows no --offline");
        return;
    }
    assert!(analysed.status.success(), "{}", show(&analysed));
}
