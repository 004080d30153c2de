#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "common/config/checks/checks.h"

namespace tandem::config {
namespace {

constexpr int kMaxDevices = 128;  // what LibTorch can number

}  // namespace

void CheckDevice(const char* key, const std::string& value, Checker* check) {
  absl::string_view device = value;
  if (device.empty() || device == "auto" || device == "cpu") return;
  int index = 0;
  const bool is_gpu = absl::ConsumePrefix(&device, "cuda") &&
                      (device.empty() || (absl::ConsumePrefix(&device, ":") && !device.empty() &&
                                          absl::ascii_isdigit(device.front()) &&
                                          absl::SimpleAtoi(device, &index) && index < kMaxDevices));
  if (!is_gpu) {
    check->Fail(key, absl::StrCat("expected auto, cpu, cuda or cuda:N with N from 0 to ",
                                  kMaxDevices - 1, ", found \"", value, "\""));
  }
}

}  // namespace tandem::config
