"""A real Chromium without a window, to look at pages with."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from typing import Any

import pytest


class Browser:
    """A real Chromium without a window.

    Args:
        driver: Selenium's driver of it.
    """

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def show(self, where: str, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        """Open an address with a window of this size, by day or by night."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        self.errors()
        self.requests()  # what came before is not asked for
        self.driver.get(where)

    def run(self, script: str, *arguments: Any) -> Any:
        """What a piece of JavaScript returns."""
        return self.driver.execute_script(script, *arguments)

    def errors(self) -> list[str]:
        """What the console has complained of since this was last asked."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def requests(self) -> list[str]:
        """Every address that was asked for since this was last asked."""
        messages = [json.loads(entry["message"])["message"] for entry in self.driver.get_log("performance")]
        sent = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
        return [params["request"]["url"] for params in sent]

    def find(self, selector: str) -> Any:
        """The first element that fits."""
        return self.driver.find_element("css selector", selector)

    def hover(self, metric: str, step: float) -> str:
        """Put the pointer over a step of a chart, and read what it says there."""
        from selenium.webdriver import ActionChains

        place = f"figure[data-metric='{metric}'] .u-over"
        over = self.find(place)
        self.run("arguments[0].scrollIntoView({block: 'center'})", over)
        at = self.run(
            "const chart = charts.find((c) => c.over === arguments[0]);"
            "return chart.valToPos(arguments[1], 'x') - chart.over.clientWidth / 2",
            over,
            step,
        )
        ActionChains(self.driver).move_to_element_with_offset(over, round(at), 0).perform()
        return str(self.run("return document.querySelector(arguments[0] + ' .tip').innerText", place))

    def count_pixels(self, metric: str, rgb: tuple[int, int, int]) -> int:
        """How many pixels of a chart have this very colour."""
        return int(
            self.run(
                "const canvas = document.querySelector(`figure[data-metric='${arguments[0]}'] canvas`);"
                "const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext('2d');"
                "copy.drawImage(canvas, 0, 0);"  # reading back from the chart itself would slow it down
                "const all = copy.getImageData(0, 0, canvas.width, canvas.height).data;"
                "let n = 0; for (let i = 0; i < all.length; i += 4)"
                "  if (all[i + 3] && [0, 1, 2].every((k) => Math.abs(all[i + k] - arguments[1][k]) < 3)) n++;"
                "return n",
                metric,
                list(rgb),
            )
        )


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser for all tests."""
    from selenium import webdriver

    program, driver_program = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver_program is None:
        pytest.fail(
            "These tests look at pages in a real browser. Install Debian's packages chromium and "
            "chromium-driver, or put chromium and chromedriver on the PATH."
        )
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for option in ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_program))
    yield Browser(driver)
    driver.quit()
