/* A signal at a chosen step of Python code: before the n-th instruction after which the interpreter looks for
   signals, of those of the source files that are meant.  A trace function in C is no step of its own, so the
   handler runs where it would run, had the signal come at that moment. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <frameobject.h>
#include <signal.h>
#include <string.h>

static long wanted_step, steps;
static int number;
static unsigned char looks[256];
static const char *parts[2];
char signal_steps_where[600];

static int is_meant(PyCodeObject *code) {
    const char *file = PyUnicode_AsUTF8(code->co_filename);
    return file && (strstr(file, parts[0]) || strstr(file, parts[1]));
}

static void note(PyFrameObject *frame) {
    char *to = signal_steps_where, *end = to + sizeof signal_steps_where - 1;
    int calls;
    Py_INCREF(frame);
    for (calls = 0; frame && calls < 4; calls++) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        PyFrameObject *caller = PyFrame_GetBack(frame);
        const char *file = PyUnicode_AsUTF8(code->co_filename), *name = strrchr(file, '/');
        to += snprintf(to, (size_t)(end - to), "%s%s:%d:%s", calls ? " < " : "", name ? name + 1 : file,
                       PyFrame_GetLineNumber(frame), PyUnicode_AsUTF8(code->co_name));
        if (to > end)
            to = end;
        Py_DECREF(code);
        Py_DECREF(frame);
        frame = caller;
    }
    Py_XDECREF(frame);
}

static int trace(PyObject *self, PyFrameObject *frame, int what, PyObject *argument) {
    (void)self;
    (void)argument;
    if (what == PyTrace_CALL) {
        PyObject_SetAttrString((PyObject *)frame, "f_trace_opcodes", Py_True);
        PyObject_SetAttrString((PyObject *)frame, "f_trace_lines", Py_False);
    } else if (what == PyTrace_OPCODE) {
        PyCodeObject *code = PyFrame_GetCode(frame);
        if (is_meant(code)) {
            PyObject *instructions = PyCode_GetCode(code);
            unsigned char instruction = PyBytes_AS_STRING(instructions)[PyFrame_GetLasti(frame)];
            if (looks[instruction] && ++steps == wanted_step) {
                note(frame);
                raise(number);
            }
            Py_DECREF(instructions);
        }
        Py_DECREF(code);
    }
    return 0;
}

/* The thread that calls is traced until `signal_steps_end`; ``instructions``: those that look. */
void signal_steps_begin(long step, int signal_number, const unsigned char *instructions, int count,
                        const char *one, const char *other) {
    int each;
    memset(looks, 0, sizeof looks);
    for (each = 0; each < count; each++)
        looks[instructions[each]] = 1;
    wanted_step = step;
    steps = 0;
    number = signal_number;
    parts[0] = one;
    parts[1] = other;
    signal_steps_where[0] = 0;
    PyEval_SetTrace(trace, Py_None);
}

/* How many steps there were. */
long signal_steps_end(void) {
    PyEval_SetTrace(NULL, NULL);
    return steps;
}
