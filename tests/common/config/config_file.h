// Configuration files of a test, in a folder that goes with it.
#ifndef TANDEM_TESTS_COMMON_CONFIG_CONFIG_FILE_H_
#define TANDEM_TESTS_COMMON_CONFIG_CONFIG_FILE_H_

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace tandem::config {

class ConfigTest : public ::testing::Test {
 protected:
  ConfigTest() {
    const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ =
        ::testing::TempDir() + "tandem_config_" + std::to_string(getpid()) + "_" + info->name();
    std::filesystem::create_directories(folder_);
  }
  ~ConfigTest() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& text) {
    const std::string path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }

  std::string folder_;
};

}  // namespace tandem::config

#endif  // TANDEM_TESTS_COMMON_CONFIG_CONFIG_FILE_H_
