// A web site on this machine with pictures, for tests of images by URL.
#ifndef TANDEM_TESTS_SUPPORT_IMAGE_SITE_H_
#define TANDEM_TESTS_SUPPORT_IMAGE_SITE_H_

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/http/server.h"
#include "common/images/fetch/image_fetcher.h"
#include "common/net/socket_address.h"
#include "tests/support/status_matchers.h"

namespace tandem::testing {

class ImageSite final : private http::Handler {
 public:
  ImageSite() {
    auto server = http::Server::Start(
        {.listen = "127.0.0.1:0", .limits = {.quick = {.num_threads = 16, .max_queued = 128}}},
        *this);
    EXPECT_OK(server.status());
    if (server.ok()) server_ = *std::move(server);
  }
  ~ImageSite() override { server_.reset(); }

  // The site answers GET `path` so. 404 for other paths.
  void Put(const std::string& path, http::Response response) {
    absl::MutexLock lock(&mu_);
    responses_[path] = std::move(response);
  }
  void PutPicture(const std::string& path, std::string file, std::string type = "image/png") {
    Put(path, {.content_type = std::move(type), .body = std::move(file)});
  }
  void PutRedirect(const std::string& path, const std::string& to) {
    Put(path, {.code = 302, .headers = {{"Location", to}}});
  }

  // From now on a request is answered once so many are under way at a time.
  void AnswerTogether(int count) {
    absl::MutexLock lock(&mu_);
    together_ = count;
  }

  std::string Url(const std::string& path) const {
    return absl::StrCat("http://localhost:", server_->port(), path);
  }
  int port() const { return server_->port(); }
  int num_requests() const {
    absl::MutexLock lock(&mu_);
    return num_requests_;
  }
  http::Request last_request() const {
    absl::MutexLock lock(&mu_);
    return last_request_;
  }

  // What lets a fetcher of a test reach this machine. No flag of a program does.
  static images::ImageFetcher::Options OnThisMachine() {
    images::ImageFetcher::Options options;
    options.check_address = [](const net::SocketAddress& address) {
      return address.is_loopback() ? absl::OkStatus()
                                   : absl::PermissionDeniedError("tests stay on this machine");
    };
    return options;
  }

 private:
  http::Admission Admit(const http::Request& /*head*/) override { return {}; }
  void Serve(http::Exchange& exchange) override {
    absl::MutexLock lock(&mu_);
    ++num_requests_;
    ++num_under_way_;
    const auto may_answer = [this] {
      mu_.AssertHeld();
      return num_under_way_ >= together_ || has_met_;
    };
    EXPECT_TRUE(mu_.AwaitWithTimeout(absl::Condition(&may_answer), absl::Minutes(1)));
    has_met_ = together_ > 1;
    --num_under_way_;
    last_request_ = exchange.request();
    const auto found = responses_.find(exchange.request().path);
    exchange.Reply(found == responses_.end() ? http::Response{.code = 404} : found->second);
  }

  mutable absl::Mutex mu_;
  std::map<std::string, http::Response> responses_;
  int num_requests_ = 0;
  int num_under_way_ = 0;
  int together_ = 1;
  bool has_met_ = false;  // so many were under way
  http::Request last_request_;
  std::unique_ptr<http::Server> server_;  // destroyed first
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_SUPPORT_IMAGE_SITE_H_
