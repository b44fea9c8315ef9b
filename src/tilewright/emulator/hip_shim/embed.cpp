// Python in a program that `tilewright emulate` started. TILEWRIGHT_EMULATE has, line by line: the file of Python's
// library, its home folder, its version (3.11), and the Python program that connects the emulated device.
#include "state.hpp"

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

using namespace stand_in;

namespace {

constexpr char SETTINGS[] = "TILEWRIGHT_EMULATE";

struct Start
{
    std::string library, home, version, program;
};

bool read_start(Start* start)
{
    const char* const given = std::getenv(SETTINGS);
    if(given == nullptr)
        return false;
    std::string rest = given;
    for(std::string* part : {&start->library, &start->home, &start->version})
    {
        const size_t end = rest.find('\n');
        if(end == std::string::npos)
            return false;
        *part = rest.substr(0, end);
        rest  = rest.substr(end + 1);
    }
    start->program = rest;
    return true;
}

// A variable of this process, set back at the end: the program must not notice that Python needs another value.
class KeptVariable
{
public:
    explicit KeptVariable(const char* name) : name_(name), set_(std::getenv(name) != nullptr), value_(set_ ? std::getenv(name) : "") {}
    ~KeptVariable()
    {
        if(set_)
            setenv(name_, value_.c_str(), 1);
        else
            unsetenv(name_);
    }

private:
    const char* name_;
    bool set_;
    std::string value_;
};

template <typename Type>
Type find_in(void* library, const char* name)
{
    return reinterpret_cast<Type>(dlsym(library, name));
}

// In a program that is Python itself, its interpreter is used.
bool run_in_own_python(const Start& start)
{
    const auto is_started = find_in<int (*)()>(RTLD_DEFAULT, "Py_IsInitialized");
    if(is_started == nullptr || is_started() == 0)
        return false;
    const std::string own = find_in<const char* (*)()>(RTLD_DEFAULT, "Py_GetVersion")();
    if(own.compare(0, start.version.size() + 1, start.version + ".") != 0)
    {
        std::fprintf(stderr, "tilewright: this program is Python %s, and tilewright runs in Python %s. Use one version.\n",
                     own.c_str(), start.version.c_str());
        return true;
    }
    const auto lock   = find_in<int (*)()>(RTLD_DEFAULT, "PyGILState_Ensure");
    const auto unlock = find_in<void (*)(int)>(RTLD_DEFAULT, "PyGILState_Release");
    const int held    = lock();
    find_in<int (*)(const char*)>(RTLD_DEFAULT, "PyRun_SimpleString")(start.program.c_str());
    unlock(held);
    return true;
}

void run_in_new_python(const Start& start)
{
    // Extension modules look for Python's functions among the symbols that all libraries see.
    void* const python = dlopen(start.library.c_str(), RTLD_NOW | RTLD_GLOBAL);
    if(python == nullptr)
    {
        std::fprintf(stderr, "tilewright: Python cannot be loaded: %s\n", dlerror());
        return;
    }
    const std::string locale = std::setlocale(LC_CTYPE, nullptr);
    {
        const KeptVariable home("PYTHONHOME"), type("LC_CTYPE");
        setenv("PYTHONHOME", start.home.c_str(), 1);
        // The folders of packages are known: looking for them would take time. Later versions have no such variable.
        if(int* const no_site = find_in<int*>(python, "Py_NoSiteFlag"))
            *no_site = 1;
        find_in<void (*)(int)>(python, "Py_InitializeEx")(0); // without signal handlers
    }
    std::setlocale(LC_CTYPE, locale.c_str());
    // The program appends the folders of tilewright's Python, which may be those of a virtual environment.
    const std::string program = "import sys; sys.path.clear()\n" + start.program;
    find_in<int (*)(const char*)>(python, "PyRun_SimpleString")(program.c_str());
    find_in<void* (*)()>(python, "PyEval_SaveThread")();
}

void end_program()
{
    int status = 0;
    if(open)
        callbacks.finish(&status);
}

} // namespace

void stand_in::start_python()
{
    static std::once_flag once;
    std::call_once(once, [] {
        Start start;
        if(open || !read_start(&start))
            return;
        if(!run_in_own_python(start))
            run_in_new_python(start);
        std::atexit(end_program);
    });
}

// Python connected the emulated device of a program.
TW_EXPORT void tilewright_program() { in_program = true; }

// Called by the generated functions: HIP functions that are not implemented.
TW_EXPORT int tilewright_missing(const char* call)
{
    const hipError_t status = ask(&Callbacks::missing, call);
    return said(status == hipSuccess ? hipErrorNotSupported : status);
}
