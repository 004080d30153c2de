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

// Draws the page at `url` when nothing is loaded any more, and writes the picture to `path`.
inline absl::StatusOr<PngImage> TakeScreenshot(const std::string& url, const std::string& path,
                                               int width = 1400, int height = 900) {
  const TempFolder profile;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path());
  std::filesystem::remove(path);
  const ProgramResult result = RunProgram(
      FindChromium(),
      {"--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
       "--force-device-scale-factor=1", "--user-data-dir=" + profile.path(),
       // Timers run ahead, but not past an answer that is waited for.
       "--virtual-time-budget=8000", absl::StrCat("--window-size=", width, ",", height),
       "--screenshot=" + path, url},
      120);
  if (!std::filesystem::exists(path)) {
    return absl::InternalError(
        absl::StrCat("no picture of ", url, " (exit ", result.exit_code, "): ", result.err));
  }
  return PngImage::Read(path);
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_CHROMIUM_H_
