// What stands where a regular file is expected: a FIFO, whose opening waits for a writer that never
// comes, a socket, a device, a folder. Each is an error at once.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <thread>

#include "common/hash/hasher.h"
#include "common/io/jsonl.h"
#include "common/io/mapped_file.h"
#include "common/io/read_file.h"
#include "tests/common/io/temporary_folder.h"
#include "tests/support/status_matchers.h"

namespace tandem::io {
namespace {

using ::tandem::testing::IsOkAndHolds;
using ::tandem::testing::StatusIs;
using ::tandem::testing::TemporaryFolder;
using ::testing::HasSubstr;

class RegularFileTest : public ::testing::TestWithParam<const char*> {
 protected:
  RegularFileTest() {
    EXPECT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0600), 0);
    EXPECT_EQ(::mkdir((folder_ / "folder").c_str(), 0700), 0);
    const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, (folder_ / "socket").c_str(), sizeof(address.sun_path) - 1);
    EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ::close(fd);
    EXPECT_EQ(::symlink("/dev/zero", (folder_ / "device").c_str()), 0);
  }

  const TemporaryFolder folder_;
};

TEST_P(RegularFileTest, IsRefusedAtOnce) {
  const std::string path = folder_ / GetParam();
  // A socket cannot even be opened.
  const bool opens = std::string(GetParam()) != "socket";
  const auto refused = [&](const absl::Status& status) {
    EXPECT_THAT(std::string(status.message()), HasSubstr(path));
    if (opens) {
      EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                                   HasSubstr("expected a regular file")));
    }
  };
  refused(ReadFile(path).status());
  refused(ReadJsonFile(path).status());
  refused(MappedFile::Open(path).status());
  refused(DigestFile(path).status());
  refused(ReadJsonLines(path, kRunFile).status());
  if (std::string(GetParam()) != "folder") refused(JsonlWriter::Open(path).status());
}

INSTANTIATE_TEST_SUITE_P(Kinds, RegularFileTest,
                         ::testing::Values("fifo", "socket", "device", "folder"),
                         [](const auto& info) { return std::string(info.param); });

TEST(DigestFile, IsThatOfItsBytes) {
  const TemporaryFolder folder;
  const std::string bytes((2 << 20) + 7, 'z');
  EXPECT_THAT(DigestFile(folder.Write("a", bytes)), IsOkAndHolds(hash::HexDigest(bytes)));
  EXPECT_THAT(DigestFile(folder.Write("none", "")), IsOkAndHolds(hash::HexDigest("")));
}

TEST(ReadInput, WaitsForTheEndOfAPipe) {
  const TemporaryFolder folder;
  const std::string path = folder / "fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&path] {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    EXPECT_EQ(::write(fd, "token", 5), 5);
    ::close(fd);
  });
  EXPECT_THAT(ReadInput(path), IsOkAndHolds(std::string("token")));
  writer.join();
}

TEST(ForEachJsonLine, ReadsAPipeThatAUserNames) {
  const TemporaryFolder folder;
  const std::string path = folder / "fifo";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&path] {
    const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    EXPECT_EQ(::write(fd, "{\"a\": 1}\n", 9), 9);
    ::close(fd);
  });
  ASSERT_OK_AND_ASSIGN(const auto rows, ReadJsonLines(path));
  writer.join();
  EXPECT_EQ(rows.size(), 1);
}

}  // namespace
}  // namespace tandem::io
