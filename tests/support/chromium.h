// Pictures of pages, as Chromium without a window draws them.
#ifndef TANDEM_TESTS_SUPPORT_CHROMIUM_H_
#define TANDEM_TESTS_SUPPORT_CHROMIUM_H_

#include <cstdlib>
#include <filesystem>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "tests/support/png_image.h"
#include "tests/support/program.h"
#include "tests/support/temp_folder.h"

namespace tandem::testing {

// TANDEM_CHROMIUM, or what Debian and others install; empty where there is none.
inline std::string FindChromium() {
  if (const char* given = std::getenv("TANDEM_CHROMIUM"); given != nullptr) return given;
  for (const char* path : {"/usr/bin/chromium", "/usr/bin/chromium-browser",
                           "/usr/bin/google-chrome", "/opt/google/chrome/chrome"}) {
    if (std::filesystem::exists(path)) return path;
  }
  return "";
}

// Runs Chromium on the page until `virtual_ms` of the page's time have passed.
inline ProgramResult RunChromium(const std::string& url, const std::string& task, int width,
                                 int height, int virtual_ms) {
  const TempFolder profile;
  return RunProgram(
      FindChromium(),
      {"--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
       "--force-device-scale-factor=1", "--user-data-dir=" + profile.path(),
       // Timers run ahead, but not past an answer that is waited for.
       absl::StrCat("--virtual-time-budget=", virtual_ms),
       absl::StrCat("--window-size=", width, ",", height), task, url},
      120);
}

// Draws the page at `url` when nothing is loaded any more, and writes the picture to `path`.
inline absl::StatusOr<PngImage> TakeScreenshot(const std::string& url, const std::string& path,
                                               int width = 1400, int height = 900) {
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::filesystem::remove(path);
  const ProgramResult result = RunChromium(url, "--screenshot=" + path, width, height, 8000);
  if (!std::filesystem::exists(path)) {
    return absl::InternalError(
        absl::StrCat("no picture of ", url, " (exit ", result.exit_code, "): ", result.err));
  }
  return PngImage::Read(path);
}

// The document as its scripts have left it, as HTML.
inline std::string DumpDocument(const std::string& url, int width = 1400, int height = 900) {
  return RunChromium(url, "--dump-dom", width, height, 20000).out;
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_CHROMIUM_H_
