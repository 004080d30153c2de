// ProbedPage: another server's page with a script of the test in it, which uses the page as a person
// would and says what it sees.
//
//   ASSERT_OK_AND_ASSIGN(const auto page, ProbedPage::Start(server->port(), R"(
//       await until(() => $("overview").children.length > 0);
//       say("charts", $("overview").children.length);)"));
//   EXPECT_EQ(page->Visit("#curves")["charts"], "3");
#ifndef TANDEM_TESTS_TOOLS_TANDEM_VIEW_PROBED_PAGE_H_
#define TANDEM_TESTS_TOOLS_TANDEM_VIEW_PROBED_PAGE_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/http/server.h"
#include "common/status/status_macros.h"
#include "tests/support/chromium.h"
#include "tests/support/http_get.h"

namespace tandem::testing {

class ProbedPage final : private http::Handler {
 public:
  // `port`: the page's server on this machine. The script has $(id), until(condition), say(name,
  // value), and event(N), which calls `on_event` with N and returns when that has.
  static absl::StatusOr<std::unique_ptr<ProbedPage>> Start(
      int port, const std::string& script, std::function<void(int)> on_event = nullptr) {
    std::unique_ptr<ProbedPage> out(new ProbedPage(port, script, std::move(on_event)));
    http::Options options;
    options.listen = "127.0.0.1:0";
    ASSIGN_OR_RETURN(out->server_, http::Server::Start(options, *out));
    return out;
  }

  // Opens the page; returns what the script has said, and "error" if it failed.
  std::map<std::string, std::string> Visit(const std::string& hash, int width = 1400) {
    const std::string html =
        DumpDocument(absl::StrCat("http://127.0.0.1:", server_->port(), "/", hash), width);
    std::map<std::string, std::string> said;
    constexpr char kBegin[] = "<pre class=\"probe\" title=\"";
    for (size_t at = html.find(kBegin); at != std::string::npos; at = html.find(kBegin, at)) {
      at += sizeof(kBegin) - 1;
      const size_t name_end = html.find("\">", at), end = html.find("</pre>", at);
      if (name_end == std::string::npos || end == std::string::npos) break;
      said[html.substr(at, name_end - at)] =
          absl::StrReplaceAll(html.substr(name_end + 2, end - name_end - 2),
                              {{"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}});
    }
    return said;
  }

 private:
  ProbedPage(int port, const std::string& script, std::function<void(int)> on_event)
      : port_(port), on_event_(std::move(on_event)) {
    script_ = absl::StrCat(R"(
const $ = (id) => document.getElementById(id);
const until = async (condition) => {
  for (let i = 0; i < 300 && !condition(); ++i) await new Promise((done) => setTimeout(done, 50));
};
const event = (number) => fetch(`probe-event?number=${number}`);
const say = (name, value) => {
  const node = document.createElement("pre");
  node.className = "probe";
  node.title = name;
  node.textContent = value;
  document.body.append(node);
};
try {
)",
                           script, "\n} catch (error) { say(\"error\", error.stack); }\n");
  }

  http::Admission Admit(const http::Request&) override { return {}; }

  void Serve(http::Exchange& exchange) override {
    const http::Request& request = exchange.request();
    if (request.path == "/probe.js") {
      return exchange.Reply({.content_type = "text/javascript", .body = script_});
    }
    if (request.path == "/probe-event") {
      int number = 0;
      if (absl::SimpleAtoi(request.QueryValue("number").value_or(""), &number)) on_event_(number);
      return exchange.Reply({.body = "done"});
    }
    const HttpAnswer answer =
        HttpGet(port_, request.query.empty() ? request.path : request.path + "?" + request.query);
    http::Response response;
    response.code = answer.code;
    response.content_type = HeaderIn(answer.head, "Content-Type: ");
    // The page's own policy, so that the test sees what it forbids.
    response.headers = {
        {"Content-Security-Policy", HeaderIn(answer.head, "Content-Security-Policy: ")}};
    response.body =
        request.path == "/"
            ? absl::StrReplaceAll(
                  answer.body, {{"</body>", "<script type=module src=probe.js></script></body>"}})
            : answer.body;
    exchange.Reply(std::move(response));
  }

  static std::string HeaderIn(const std::string& head, const std::string& name) {
    const size_t begin = head.find(name);
    if (begin == std::string::npos) return "";
    return head.substr(begin + name.size(), head.find("\r\n", begin) - begin - name.size());
  }

  const int port_;
  std::string script_;
  const std::function<void(int)> on_event_;
  std::unique_ptr<http::Server> server_;  // destroyed first
};

}  // namespace tandem::testing

#endif  // TANDEM_TESTS_TOOLS_TANDEM_VIEW_PROBED_PAGE_H_
