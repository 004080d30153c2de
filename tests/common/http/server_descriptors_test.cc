// A process that has no descriptor left.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/time.h>

#include <algorithm>
#include <vector>

#include "tests/common/http/test_site.h"
#include "tests/support/http_clients.h"

namespace tandem::http {
namespace {

using ::tandem::testing::HttpCodeOf;
using ::tandem::testing::HttpConnect;
using ::tandem::testing::HttpIsClosed;
using ::tandem::testing::HttpSend;
using ::tandem::testing::HttpSocket;

constexpr char kGet[] = "GET /quick HTTP/1.1\r\nHost: localhost\r\n\r\n";

// Takes all that the process may still open.
std::vector<host::FileDescriptor> TakeAllDescriptors() {
  std::vector<host::FileDescriptor> taken;
  while (true) {
    host::FileDescriptor fd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!fd.is_open()) return taken;
    taken.push_back(std::move(fd));
  }
}

class HttpServerWithoutDescriptors : public ::testing::Test {
 protected:
  HttpServerWithoutDescriptors() {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = 512;
    setrlimit(RLIMIT_NOFILE, &files);
  }
};

TEST_F(HttpServerWithoutDescriptors, StillAnswers) {
  TestSite site;
  std::vector<host::FileDescriptor> clients(100);
  for (host::FileDescriptor& client : clients) client = HttpSocket();
  const std::vector<host::FileDescriptor> taken = TakeAllDescriptors();
  ASSERT_GT(taken.size(), 100u);

  // More than the server has in reserve.
  for (host::FileDescriptor& client : clients) ASSERT_TRUE(HttpConnect(client, site.port()));
  ASSERT_TRUE(HttpSend(clients.back(), kGet));

  EXPECT_EQ(HttpCodeOf(clients.back()), 200);
  EXPECT_TRUE(HttpIsClosed(clients.front()));
}

TEST_F(HttpServerWithoutDescriptors, WaitsWithoutSpinningUntilThereAreSome) {
  TestSite site({.slow = {.num_threads = 80}});
  // Requests that are served are not closed for others: they use up the server's reserve.
  std::vector<host::FileDescriptor> clients(60);
  for (host::FileDescriptor& client : clients) client = HttpSocket();
  std::vector<host::FileDescriptor> taken = TakeAllDescriptors();
  for (host::FileDescriptor& client : clients) {
    ASSERT_TRUE(HttpConnect(client, site.port()));
    ASSERT_TRUE(HttpSend(client, "GET /slow/hold HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  }
  site.AwaitHeld(8);
  rusage before{};
  getrusage(RUSAGE_SELF, &before);
  poll(nullptr, 0, 500);
  rusage after{};
  getrusage(RUSAGE_SELF, &after);
  timeval used{};
  timersub(&after.ru_utime, &before.ru_utime, &used);
  EXPECT_LT(used.tv_sec * 1000000 + used.tv_usec, 250000) << "half a second over an error";

  taken.clear();
  site.AwaitHeld(60);
  site.Release();
  for (host::FileDescriptor& client : clients) EXPECT_EQ(HttpCodeOf(client), 200);
}

TEST_F(HttpServerWithoutDescriptors, TakesAPartOfThem) {
  TestSite site;
  std::vector<host::FileDescriptor> idle;
  for (int i = 0; i < 220; ++i) idle.push_back(testing::HttpDial(site.port()));
  EXPECT_EQ(HttpCodeOf(testing::HttpDial(site.port(), kGet)), 200);
  const auto num_open =
      std::count_if(idle.begin(), idle.end(), [](const auto& fd) { return !HttpIsClosed(fd); });
  EXPECT_LE(num_open, 128) << "a quarter of 512";
}

}  // namespace
}  // namespace tandem::http
