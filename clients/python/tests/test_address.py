"""Addresses are read as the program reads them."""

import unittest

from windlass.address import ADDRESSES_MAX, parse_address, parse_addresses
from windlass.errors import ConfigError


def listed(text: str) -> str:
    return ",".join(map(str, parse_addresses(text)))


class Addresses(unittest.TestCase):
    def test_addresses_are_plain_only_on_this_machine_or_by_word(self) -> None:
        cases = {
            "127.0.0.1:7117": "http://127.0.0.1:7117",
            "[::1]:7117": "http://[::1]:7117",
            "localhost:1": "http://localhost:1",
            "farm:7117": "https://farm:7117",
            "http://farm:7117/": "http://farm:7117",
            "/run/w.sock": "unix:/run/w.sock",
        }
        for text, said in cases.items():
            self.assertEqual(str(parse_address(text)), said)

    def test_a_list_is_separated_by_commas_and_one_address_is_a_list(self) -> None:
        self.assertEqual(listed("farm:7117"), "https://farm:7117")
        self.assertEqual(
            listed("farm:7117, http://b:1/ ,unix:/run/w.sock"), "https://farm:7117,http://b:1,unix:/run/w.sock"
        )
        self.assertEqual(listed("a:1,,b:2,"), "https://a:1,https://b:2")
        self.assertEqual(listed("a:1,https://a:1,b:2"), "https://a:1,https://b:2", "each is tried once")
        self.assertEqual(listed("[::1]:1,[fe80::1]:2"), "http://[::1]:1,https://[fe80::1]:2")

    def test_a_path_may_have_a_comma(self) -> None:
        self.assertEqual(listed("unix:/home/a,b/w.sock"), "unix:/home/a,b/w.sock")
        self.assertEqual(listed("/home/a,b/w.sock,farm:7117"), "unix:/home/a,b/w.sock,https://farm:7117")
        self.assertEqual(listed("/a.sock,/b.sock"), "unix:/a.sock,unix:/b.sock")

    def test_a_list_names_a_server_and_not_too_many(self) -> None:
        many = [f"h{number}:1" for number in range(ADDRESSES_MAX + 1)]
        with self.assertRaisesRegex(ConfigError, "names no server"):
            parse_addresses(" , ")
        with self.assertRaisesRegex(ConfigError, "too many"):
            parse_addresses(",".join(many))
        self.assertEqual(len(parse_addresses(",".join(many[1:]))), ADDRESSES_MAX)

    def test_an_address_has_host_port_and_path(self) -> None:
        self.assertEqual(parse_address("https://farm/w").host_port_path(), ("farm", 443, "/w"))
        self.assertEqual(parse_address("[::1]:7").host_port_path(), ("::1", 7, ""))
        for bad in ("http://:1", "http://a:port"):
            with self.assertRaises(ConfigError):
                parse_address(bad).host_port_path()


if __name__ == "__main__":
    unittest.main()
