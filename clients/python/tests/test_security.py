"""Tokens, certificates and servers over TCP."""

import asyncio
import os
import unittest
from pathlib import Path

import windlass
from tests.servers import ServerProcess, WithDirectory


class Secure(WithDirectory):
    def setUp(self) -> None:
        super().setUp()
        self.ca = self.dir / "ca"
        self.program("ca", "init", str(self.ca))
        self.program("ca", "issue", str(self.ca), "--server", "127.0.0.1,localhost")

    def serve(self, *args: str) -> ServerProcess:
        """A server over TLS."""
        cert, key = self.ca / "127.0.0.1.pem", self.ca / "127.0.0.1.key"
        tls = ["--listen", "127.0.0.1:0", "--no-worker", "--tls-cert", str(cert), "--tls-key", str(key)]
        server = self.start_server(*tls, *args, name="farm")
        server.address = f"https://{server.address.rpartition('/')[2]}"
        return server

    def token(self, server: ServerProcess, *args: str) -> Path:
        path = self.dir / "token"
        self.program("token", "create", *args, "--out", str(path), server=server.admin_socket)
        return path

    def test_a_token_and_the_certificate_of_the_authority_are_enough(self) -> None:
        server = self.serve()
        token = self.token(server, "--role", "user", "--user", "ann")
        os.environ.update(WINDLASS_SERVER=server.address, WINDLASS_CA=str(self.ca / "ca.pem"))
        os.environ["WINDLASS_TOKEN_FILE"] = str(token)
        with windlass.Client() as client:
            self.assertEqual((client.version().user, client.version().role), ("ann", "user"))
            job = client.job(client.submit(["true"]))
            self.assertEqual((job.user, job.queue), ("ann", "ann"))
            self.assertEqual(client.cancel(job).state, "canceled")
        self.assertEqual(asyncio.run(self.version()).user, "ann")

    async def version(self) -> windlass.Version:
        async with windlass.AsyncClient() as client:
            return await client.version()

    def client(self, *args: str, **named: str) -> windlass.Client:
        client = windlass.Client(*args, **named)
        self.addCleanup(client.close)
        return client

    def test_what_is_wrong_with_credentials_is_told(self) -> None:
        server = self.serve()
        ca = str(self.ca / "ca.pem")
        with self.assertRaisesRegex(windlass.Unauthorized, "cannot reach the server"):
            self.client(server.address, ca=ca, token="wl_a_b").version()
        with self.assertRaisesRegex(windlass.Untrusted, "not trusted.*WINDLASS_CA"):
            self.client(server.address, token="wl_a_b").version()
        with self.assertRaisesRegex(windlass.Garbled, "https://HOST:PORT"):
            self.client(server.address.replace("https", "http"), token="wl_a_b").version()
        with self.assertRaisesRegex(windlass.Garbled, "https://HOST:PORT"):
            asyncio.run(windlass.AsyncClient(server.address.replace("https", "http"), token="wl_a_b").version())
        with self.assertRaisesRegex(windlass.ConfigError, "cannot read /nowhere: No such file"):
            self.client(server.address, token_file="/nowhere")
        with self.assertRaisesRegex(windlass.ConfigError, "needs its key"):
            self.client(server.address, cert=ca)

    def test_a_client_certificate_is_shown_where_the_server_asks(self) -> None:
        self.program("ca", "issue", str(self.ca), "--worker", "box1")
        server = self.serve("--tls-client-ca", str(self.ca / "ca.pem"), "--set", "tls.require_client_cert=true")
        token = self.token(server, "--role", "user", "--user", "ann").read_text().strip()
        ca = str(self.ca / "ca.pem")
        cert, key = str(self.ca / "worker-box1.pem"), str(self.ca / "worker-box1.key")
        shown = self.client(server.address, ca=ca, token=token, cert=cert, key=key)
        self.assertEqual(shown.version().user, "ann")
        with self.assertRaises(windlass.NoAnswer):
            self.client(server.address, ca=ca, token=token).version()

    def test_a_user_may_not_do_what_an_administrator_may(self) -> None:
        server = self.serve()
        ca, token = str(self.ca / "ca.pem"), self.token(server, "--role", "viewer", "--user", "bob")
        with self.assertRaises(windlass.Forbidden):
            self.client(server.address, ca=ca, token_file=str(token)).submit(["true"])

    def test_a_token_file_that_others_can_read_is_warned_of(self) -> None:
        path = self.dir / "open.token"
        path.write_text("wl_a_b\n")
        path.chmod(0o644)
        with self.assertLogs("windlass", "WARNING") as logged:
            self.client("127.0.0.1:1", token_file=str(path))
        self.assertIn("chmod 600", logged.output[0])


class Local(WithDirectory):
    def test_the_server_of_this_user_is_reached_over_tcp_without_a_token(self) -> None:
        server = self.start_server("--listen", "127.0.0.1:0", "--no-worker")
        # The server writes its token before it answers the first request.
        with windlass.Client(server.admin_socket) as client:
            self.assertIsNone(client.version().user)
        with windlass.Client(server.address) as client:
            self.assertEqual(client.version().role, "admin")
            self.assertNotIn("HOME", client.default_env())
            self.assertIn("WINDLASS", client.default_env())


if __name__ == "__main__":
    unittest.main()
