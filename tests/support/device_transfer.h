// Runs `tandem bench sync --device` with the tiny model: a whole broadcast between processes, whose
// digests the program compares.
#ifndef TANDEM_TESTS_SUPPORT_DEVICE_TRANSFER_H_
#define TANDEM_TESTS_SUPPORT_DEVICE_TRANSFER_H_

#include <gtest/gtest.h>

#include <string>

#include "nlohmann/json.hpp"
#include "tests/support/program.h"
#include "tests/support/tiny_model.h"

namespace tandem::testing {

inline void ExpectTransfer(const std::string& device, const std::string& backend,
                           const std::string& dtype) {
  const TempFolder folder;
  const ProgramResult result = RunProgram(
      "tandem", {"bench", "sync", "--model", WriteTinyModel(folder), "--device", device,
                 "--backend", backend, "--dtype", dtype, "--rollouts", "2", "--repeats", "2"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const nlohmann::json line = nlohmann::json::parse(result.out);
  EXPECT_EQ(line["backend"], backend);
  EXPECT_EQ(line["device"].get<std::string>().substr(0, device.size()), device);
  for (const char* what : {"", "raw_", "pack_", "digest_", "copy_"}) {
    EXPECT_GT(line[std::string(what) + "gigabytes_per_second"].get<double>(), 0) << what;
  }
}

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_DEVICE_TRANSFER_H_
